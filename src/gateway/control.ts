// Handlers of the control socket. `townhall` commands send their requests to the running server, because no
// other process can open its embedded database.
import type { ControlHandler } from '../kernel/control.ts';
import type { DatabaseControls } from '../kernel/data/database-controls.ts';
import { asRecord } from '../kernel/json-value.ts';
import type { RecentLines } from '../kernel/recent-lines.ts';
import type { Admin, CredentialsResult, MachineRequest } from './admin/index.ts';

/** Facts about the running server, for commands in the same folder. */
export interface ServerDescription {
  /** The addresses of the gateway and the agent; null for a server that does not listen in this process. */
  gateway: string | null;
  agent: string | null;
  modelsFile: string | null;
  /** The names of the variables in the environment of the process; never a value. */
  variables: string[];
}

export function createControlHandlers({
  admin,
  audit,
  credits,
  ledger,
  env,
  ai,
  database,
  listEnv,
  recentLines,
  describeServer,
}: {
  admin: Pick<Admin, 'setup' | 'reset' | 'machines'>;
  audit: { verify(head: string | null): Promise<unknown> };
  credits: { verify(): Promise<unknown>; report(): Promise<void> };
  ledger: { show(userId: string): Promise<unknown>; generation(): Promise<string> };
  env: { controls: Readonly<Record<string, ControlHandler>> };
  ai: { checkProviders(): Promise<unknown> };
  database: DatabaseControls;
  listEnv(): Promise<readonly { key: string }[]>;
  /** The latest log lines, for `townhall logs`. */
  recentLines?: Pick<RecentLines, 'read'> | undefined;
  describeServer(): ServerDescription;
}): Record<string, ControlHandler> {
  return {
    ...adminHandlers(admin),
    ...env.controls,
    ...database,
    'audit.verify': (head) => audit.verify(typeof head === 'string' ? head : null),
    // Write the charges of this process to the database first, so that the backup contains them.
    'db.backup': async (input) => {
      await credits.report();
      return database['db.backup'](input);
    },
    'ledger.verify': () => credits.verify(),
    'ledger.show': (userId) => ledger.show(String(userId)),
    'ledger.generation': () => ledger.generation(),
    'server.describe': async () => describeServer(),
    'models.check': () => ai.checkProviders(),
    ...(recentLines === undefined ? {} : { 'logs.read': (input) => readLines(recentLines, input) }),
    'db.facts': async () => ({
      ...(await database['db.facts']()),
      storedKeys: (await listEnv()).map(({ key }) => key),
    }),
  };
}

async function readLines(recentLines: Pick<RecentLines, 'read'>, input: unknown): Promise<unknown> {
  const { after: afterLine } = asRecord(input);
  return recentLines.read(typeof afterLine === 'number' ? afterLine : 0);
}

function adminHandlers({
  setup,
  reset,
  machines,
}: Pick<Admin, 'setup' | 'reset' | 'machines'>): Record<string, ControlHandler> {
  const withCredentials =
    (action: (adminId: string, password: string) => Promise<CredentialsResult>): ControlHandler =>
    async (input) => {
      const { adminId, password } = input as { adminId: unknown; password: unknown };
      return action(String(adminId), String(password));
    };
  return {
    'admin.setup': withCredentials(setup),
    'admin.reset': withCredentials(reset),
    'admin.token.create': (input) => machines.create(input as MachineRequest),
    'admin.token.list': () => machines.list(),
    'admin.token.revoke': (input) => {
      const { credentialId, keepTokens } = input as { credentialId: unknown; keepTokens: unknown };
      return machines.revoke(String(credentialId), { keepTokens: keepTokens === true });
    },
  };
}
