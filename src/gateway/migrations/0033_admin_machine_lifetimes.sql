-- Admin: a machine credential without an end gets one, a year from now. New ones always have one.
update gateway.admin_machines set expires_at = gateway.townhall_now() + interval '365 days' where expires_at is null;
