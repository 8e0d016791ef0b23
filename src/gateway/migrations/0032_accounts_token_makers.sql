-- Accounts: which credential made a token. Revoking the maker revokes what it made.
alter table gateway.accounts_tokens
  -- The id of a user token or of a machine credential. Null for logins, for administrators and for older tokens.
  add column maker_id text;
create index accounts_tokens_maker on gateway.accounts_tokens (maker_id) where maker_id is not null;
