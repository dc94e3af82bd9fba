-- What the server is set to, as far as something here depends on it. MariaDB and MySQL do not know each other's
-- variables, and this way of asking names none that is missing.
show variables where variable_name in ('version', 'log_bin', 'binlog_format', 'wsrep_on');
select 'innodb' as Variable_name, support as Value from information_schema.engines where engine = 'InnoDB';
