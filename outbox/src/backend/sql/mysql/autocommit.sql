-- Before statements that stand for themselves: a server or a hook of the pool may have turned it off.
set session autocommit = 1;
