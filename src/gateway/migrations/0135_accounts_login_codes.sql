-- Accounts: codes for apps of other origins, and what a Bureau says about its login page.
alter table gateway.accounts_tickets
  drop constraint accounts_tickets_purpose_check,
  add constraint accounts_tickets_purpose_check
    check (purpose in ('oauth_state', 'confirmation', 'registration', 'password_reset', 'login_code'));

alter table gateway.bureaus_records
  -- Addresses to which the login page may return, as the URL parser writes them.
  add column redirect_uris text[] not null default '{}',
  -- Null means the colour of the page itself.
  add column color text check (color ~ '^#[0-9a-f]{6}$');
