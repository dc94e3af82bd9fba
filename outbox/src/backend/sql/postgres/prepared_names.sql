-- Whether a name that sqlx gives to a prepared statement has come through as it is: this one has such a name.
select exists (select 1 from pg_prepared_statements where name ~ '^sqlx_s_[0-9]+$');
