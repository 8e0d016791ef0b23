-- Accounts: tokens that an administrator issued, API keys of users, and users who were removed.
alter table gateway.accounts_tokens
  drop constraint accounts_tokens_kind,
  -- `user` is the token of a login.
  add constraint accounts_tokens_kind check (kind in ('user', 'issued', 'key')),
  -- The models that the token is good for; null means whatever its user may call.
  add column models text[];

alter table gateway.accounts_users
  drop constraint accounts_users_state_check,
  -- A removed user keeps the row, so that what was used stays counted, and nothing that tells who it was.
  add constraint accounts_users_state_check check (state in ('active', 'blocked', 'removed')),
  add constraint accounts_removed_is_anonymous check (
    state <> 'removed' or (email is null and display_name is null and avatar_url is null and metadata = '{}'));

-- For the pages of an administrator's list, and for finding a user by e-mail address.
create index accounts_users_bureau on gateway.accounts_users (bureau_id, user_id);
create index accounts_users_email on gateway.accounts_users (lower(email)) where email is not null;
create index accounts_login_attempts_user on gateway.accounts_login_attempts (user_id);
