// The credential of a request, and what to do when the server refuses it.
import { readFile } from 'node:fs/promises';
import type { LocalServer } from './local-edition.ts';
import type { CallableOperation } from './operations.ts';
import { tokenMembers, type Environment, type Identity, type Profile } from './profiles.ts';

export interface Credential {
  token: string;
  /** Where the token was read from, such as `TOWNHALL_TOKEN`. */
  source: string;
}

/** A server with the profile or local edition whose credentials may be sent to it. */
export interface Server {
  url: string;
  /** The profile that names this server. */
  profile: { name: string; profile: Profile } | undefined;
  /** Set when the server is the local edition of this folder. */
  local: LocalServer | undefined;
}

/**
 * The identity for each security scheme other than the user's. A machine credential has no variable of its
 * own: it takes the place of the administrator's.
 */
const callerOfScheme: Readonly<Record<string, Identity>> = {
  adminSession: 'admin',
  machineCredential: 'admin',
  agentToken: 'agent',
};
const tokenVariables: Readonly<Record<Identity, string>> = {
  user: 'TOWNHALL_TOKEN',
  admin: 'TOWNHALL_ADMIN_TOKEN',
  agent: 'TOWNHALL_AGENT_TOKEN',
};

/**
 * The identities whose credentials are tried, in this order: the user's comes first if the operation
 * accepts it, otherwise last.
 */
function callersOf({ credentials }: CallableOperation): Identity[] {
  const otherCallers = credentials.flatMap((scheme) => callerOfScheme[scheme] ?? []);
  return [
    ...new Set<Identity>(
      credentials.includes('userToken') ? ['user', ...otherCallers] : [...otherCallers, 'user'],
    ),
  ];
}

/**
 * A profile's credential is sent only to the profile's own addresses, and the credential of the local
 * edition only to the local edition.
 */
export async function findCredential(
  operation: CallableOperation,
  server: Server,
  { tokenFile, env }: { tokenFile: string | undefined; env: Environment },
): Promise<Credential | undefined> {
  if (tokenFile !== undefined) return readCredential(tokenFile, tokenFile);
  for (const caller of callersOf(operation)) {
    const credential = await credentialOf(caller, server, env);
    if (credential !== undefined) return credential;
  }
  return undefined;
}

/** Looks in the profile, then in the environment, then in the token file of the local edition. */
async function credentialOf(
  caller: Identity,
  { profile, local }: Server,
  env: Environment,
): Promise<Credential | undefined> {
  const file = profile?.profile[tokenMembers[caller]];
  if (file !== undefined) return readCredential(file, `${file} of the profile "${profile?.name}"`);
  const variable = tokenVariables[caller];
  const token = env[variable] ?? '';
  if (token !== '') return { token, source: variable };
  if (local === undefined || local.caller !== caller) return undefined;
  const credential = await readCredential(local.tokenFile, local.tokenFile).catch(() => undefined);
  return credential?.token === '' ? undefined : credential;
}

async function readCredential(file: string, source: string): Promise<Credential> {
  return { token: (await readFile(file, 'utf8')).trim(), source };
}

export interface Refusal {
  status: number;
  code: string;
}

/** Names the token that was sent and the remedy. Undefined when another credential would not help. */
export function explainRefusal(
  { status, code }: Refusal,
  operation: CallableOperation,
  { credential, server }: { credential: Credential | undefined; server: Server },
): string | undefined {
  if (status !== 401 && code !== 'forbidden_for_identity') return undefined;
  const [caller = 'user'] = callersOf(operation);
  const sentence =
    credential === undefined ? 'No token was sent.' : `The token of ${credential.source} was sent.`;
  // `townhall login` finds these servers by itself; any other address has to be repeated.
  const isFoundByLogin = server.profile !== undefined || server.local !== undefined;
  const urlOption = isFoundByLogin ? '' : ` --url ${new URL(server.url).origin}`;
  return `${sentence}\n${remedies[caller](urlOption)}`;
}

/** The remedy for each identity that an operation may need. */
const remedies: Readonly<Record<Identity, (urlOption: string) => string>> = {
  user: (urlOption) => `Log in with "townhall login${urlOption}", or set TOWNHALL_TOKEN or --token-file.`,
  admin: (urlOption) =>
    `The operation needs an administrator: log in with "townhall login --admin${urlOption}", or set TOWNHALL_ADMIN_TOKEN or --token-file.`,
  agent: () =>
    "The operation needs the agent's token: set --token-file to agent.token in the agent's data folder, or set TOWNHALL_AGENT_TOKEN.",
};
