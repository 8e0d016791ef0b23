-- One row that every replica looks at twice a second: its number grows with each change that others must hear of.
create table gateway.changes (
  only_row boolean primary key default true check (only_row),
  number bigint not null default 0
);
insert into gateway.changes default values;
