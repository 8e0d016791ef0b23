// `townhall admin token create|list|revoke`: the machine credentials of products' backends.
import type { Machine, Machines } from '../../gateway/admin/index.ts';
import { SettingError } from '../../kernel/settings.ts';
import { parseFlags } from '../command-line/command.ts';
import type { CommandInput } from '../command-line/command.ts';
import { gatewayConfigHere } from '../data/gateway-config.ts';
import { gatewayPlace, requireDatabase } from '../data/database-location.ts';
import { askRunning, withGateway } from '../data/running-gateway.ts';
import { readTtl } from '../command-line/duration.ts';

/** A machine as the control socket carries it too: times are texts there. */
type Shown = {
  [Name in keyof Machine]: Machine[Name] extends Date | null ? Date | string | null : Machine[Name];
};

/** Runs with the words behind `townhall admin token`. */
export async function runAdminToken(input: CommandInput): Promise<number> {
  const { flags, words } = parseFlags(input.arguments, {
    flags: ['scope', 'bureau', 'ttl', 'database-path'],
    switches: ['json', 'keep-tokens'],
  });
  const [, action, credentialId, ...surplus] = words;
  const config = await gatewayConfigHere({ 'database-path': flags['database-path'] }, input);
  const asJson = flags['json'] === 'true';
  const keepTokens = flags['keep-tokens'] === 'true';
  const ask = <T>(name: string, given: unknown, work: (machines: Machines) => Promise<T>): Promise<T> =>
    askRunning(config, { name: `admin.token.${name}`, input: given }, () => {
      requireDatabase(gatewayPlace(config));
      return withGateway(config, input, (gateway) => work(gateway.machines));
    });

  if (action === 'create' && credentialId === undefined) {
    const request = readRequest(flags);
    const made: Shown & { credential: string } = await ask('create', request, (machines) =>
      machines.create(request),
    );
    if (asJson) input.print(JSON.stringify({ ...wire(made), token: made.credential }));
    else {
      input.print(made.credential);
      input.complain(`This credential is shown once. Its id is ${made.credentialId}; ${lifetime(made)}.`);
    }
    return 0;
  }
  if (action === 'list' && credentialId === undefined) {
    const machines: Shown[] = await ask('list', null, (room) => room.list());
    if (asJson) input.print(JSON.stringify({ items: machines.map(wire) }));
    else if (machines.length === 0) input.print('There are no machine credentials.');
    else
      for (const machine of machines)
        input.print(
          [
            machine.credentialId,
            `…${machine.last4}`,
            machine.bureauId,
            machine.scopes.join(','),
            lifetime(machine),
          ].join('  '),
        );
    return 0;
  }
  if (action === 'revoke' && credentialId !== undefined && surplus.length === 0) {
    const { revoked } = await ask('revoke', { credentialId, keepTokens }, (machines) =>
      machines.revoke(credentialId, { keepTokens }),
    );
    if (asJson) input.print(JSON.stringify({ credential_id: credentialId, revoked }));
    else input.print(revoked ? `${credentialId} is revoked.` : `${credentialId} was revoked already.`);
    return 0;
  }
  throw new SettingError('say "townhall admin token create", "list" or "revoke ID"; see --help.');
}

function readRequest(flags: Record<string, string | undefined>): {
  scopes: string[];
  bureauId: string;
  ttlSeconds?: number;
} {
  const { scope, bureau, ttl } = flags;
  if (scope === undefined || bureau === undefined)
    throw new SettingError('a machine credential needs --scope and --bureau.');
  const scopes = scope.split(',').map((name) => name.trim());
  return { scopes, bureauId: bureau, ...(ttl === undefined ? {} : { ttlSeconds: readTtl(ttl) }) };
}

function wire(machine: Shown) {
  const { credentialId, bureauId, scopes, last4, createdAt, expiresAt, revokedAt, lastUsedAt } = machine;
  return {
    credential_id: credentialId,
    bureau_id: bureauId,
    scopes,
    last4,
    created_at: time(createdAt),
    expires_at: time(expiresAt),
    revoked_at: time(revokedAt),
    last_used_at: time(lastUsedAt),
  };
}

function lifetime({ revokedAt, expiresAt }: Shown): string {
  if (revokedAt !== null) return `revoked ${time(revokedAt)}`;
  return `expires ${time(expiresAt)}`;
}

function time(value: Date | string | null): string | null {
  return value instanceof Date ? value.toISOString() : value;
}
