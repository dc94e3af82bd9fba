-- A number that is another one whenever another connection has committed, in this process or elsewhere.
pragma /*database*/data_version;
