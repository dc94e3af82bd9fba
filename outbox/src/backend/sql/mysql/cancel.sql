-- Ends another of our connections with the statement that it runs, and rolls its transaction back.
kill /*numbers*/0;
