// `townhall admin token create|list|revoke`: the machine credentials of products' backends.
import type { Machine, Machines } from '../../gateway/admin/index.ts';
import { SettingError } from '../../kernel/settings.ts';
import { action, type CommandContext } from '../command-line/command.ts';
import { readTtlSeconds } from '../command-line/duration.ts';
import { askServer, gatewayDatabase, requireDatabase } from '../data/database-location.ts';
import { dataOptions, readConfigHere } from '../data/gateway-config.ts';
import { withGateway } from '../data/gateway.ts';

/** A machine as either the gateway or its control socket returns it; over the socket dates are strings. */
type MachineRecord = {
  [Name in keyof Machine]: Machine[Name] extends Date | null ? Date | string | null : Machine[Name];
};

const createCredential = action({
  path: 'token create',
  summary: "Create a machine credential for a product's backend and show it once.",
  options: {
    scope: {
      kind: 'value',
      placeholder: 'SCOPES',
      summary: 'What the credential may do: tokens.issue, bureaus.current.',
    },
    bureau: { kind: 'value', placeholder: 'ID', summary: 'The one Bureau in which it is valid.' },
    ttl: {
      kind: 'value',
      placeholder: 'TIME',
      summary: 'Lifetime such as 12h or 90d; default 90d, at most 365d.',
    },
    ...dataOptions,
  },
  async run({ options, ...context }) {
    const request = readRequest(options);
    const machine: MachineRecord & { credential: string } = await askMachines(
      options,
      context,
      { name: 'create', input: request },
      (machines) => machines.create(request),
    );
    if (options.json)
      context.print(JSON.stringify({ ...serializeMachine(machine), token: machine.credential }));
    else {
      context.print(machine.credential);
      context.printError(
        `This credential is shown once. Its id is ${machine.credentialId}; ${validityOf(machine)}.`,
      );
    }
    return 0;
  },
});

const listCredentials = action({
  path: 'token list',
  summary: 'List the machine credentials.',
  options: dataOptions,
  async run({ options, ...context }) {
    const machines: MachineRecord[] = await askMachines(
      options,
      context,
      { name: 'list', input: null },
      (service) => service.list(),
    );
    if (options.json) context.print(JSON.stringify({ items: machines.map(serializeMachine) }));
    else if (machines.length === 0) context.print('There are no machine credentials.');
    else for (const machine of machines) context.print(describeMachine(machine));
    return 0;
  },
});

const revokeCredential = action({
  path: 'token revoke',
  summary: 'Revoke a machine credential and the user tokens that it issued.',
  arguments: { credentialId: { placeholder: 'ID' } },
  options: {
    'keep-tokens': {
      kind: 'switch',
      summary: 'Revoke the credential and keep the user tokens that it issued.',
    },
    ...dataOptions,
  },
  async run({ arguments: { credentialId }, options, ...context }) {
    const keepTokens = options['keep-tokens'];
    const { revoked } = await askMachines(
      options,
      context,
      { name: 'revoke', input: { credentialId, keepTokens } },
      (machines) => machines.revoke(credentialId, { keepTokens }),
    );
    if (options.json) context.print(JSON.stringify({ credential_id: credentialId, revoked }));
    else context.print(revoked ? `${credentialId} is revoked.` : `${credentialId} was already revoked.`);
    return 0;
  },
});

export const machineTokenActions = [createCredential, listCredentials, revokeCredential];

async function askMachines<T>(
  options: { 'database-path': string | undefined },
  context: CommandContext,
  { name, input }: { name: string; input: unknown },
  work: (machines: Machines) => Promise<T>,
): Promise<T> {
  const config = await readConfigHere({ 'database-path': options['database-path'] }, context);
  const location = gatewayDatabase(config);
  return askServer(location, { name: `admin.token.${name}`, input }, () => {
    requireDatabase(location);
    return withGateway(config, context, (gateway) => work(gateway.machines));
  });
}

function readRequest({
  scope,
  bureau,
  ttl,
}: {
  scope: string | undefined;
  bureau: string | undefined;
  ttl: string | undefined;
}): { scopes: string[]; bureauId: string; ttlSeconds?: number } {
  if (scope === undefined || bureau === undefined)
    throw new SettingError('a machine credential needs --scope and --bureau.');
  const scopes = scope.split(',').map((name) => name.trim());
  return { scopes, bureauId: bureau, ...(ttl === undefined ? {} : { ttlSeconds: readTtlSeconds(ttl) }) };
}

function serializeMachine(machine: MachineRecord) {
  const { credentialId, bureauId, scopes, last4, createdAt, expiresAt, revokedAt, lastUsedAt } = machine;
  return {
    credential_id: credentialId,
    bureau_id: bureauId,
    scopes,
    last4,
    created_at: formatTime(createdAt),
    expires_at: formatTime(expiresAt),
    revoked_at: formatTime(revokedAt),
    last_used_at: formatTime(lastUsedAt),
  };
}

function describeMachine(machine: MachineRecord): string {
  const { credentialId, last4, bureauId, scopes } = machine;
  return [credentialId, `…${last4}`, bureauId, scopes.join(','), validityOf(machine)].join('  ');
}

function validityOf({ revokedAt, expiresAt }: MachineRecord): string {
  return revokedAt === null ? `expires ${formatTime(expiresAt)}` : `revoked ${formatTime(revokedAt)}`;
}

function formatTime(time: Date | string | null): string | null {
  return time instanceof Date ? time.toISOString() : time;
}
