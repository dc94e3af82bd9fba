-- Every name that leads to a consumer.
select consumer, name from /*schema*/outbox_consumer_name order by name;
