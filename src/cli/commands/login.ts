// `townhall login`: logs a person in at a gateway and stores the token for the other commands.
import { GatewayError, type GatewayClient } from '@townhall/gateway';
import { readProfiles, writeProfiles, type Environment } from '../call/profiles.ts';
import { action, type Command } from '../command-line/command.ts';
import { deviceName, loginByDevice } from '../login/device-login.ts';
import { chooseServer, gatewayClient, type ServerChoice } from '../login/server.ts';
import { tokenPath, writeToken } from '../login/token-file.ts';
import { untilCancelled } from '../login/until-cancelled.ts';

export const command: Command = {
  description: [
    'Logs you in at a gateway: it shows a code, you confirm the code in a browser, on this machine or another. The token',
    "is stored as your user token in a profile, beside the administrator's and the agent's; commands use it from then on.",
    'At a local edition on this machine there is nothing to confirm.',
  ],
  actions: [
    action({
      options: {
        url: {
          kind: 'value',
          placeholder: 'URL',
          summary: 'The gateway; else TOWNHALL_URL, the profile in use, or the local edition.',
        },
        profile: {
          kind: 'value',
          placeholder: 'NAME',
          summary: 'The profile to write; else the one in use, or one named after the host.',
        },
        bureau: { kind: 'value', placeholder: 'ID', summary: 'The Bureau to log in to (local).' },
        'no-browser': { kind: 'switch', summary: 'Only print the address of the page.' },
        json: { kind: 'switch', summary: 'Print the result as JSON.' },
      },
      async run({ options, env, print, printError }) {
        const server = await chooseServer(options, env);
        const { token, userName, expiresAt } = await untilCancelled(async (signal) => {
          const login = await requestToken(server, {
            bureauId: options.bureau ?? 'local',
            opensBrowser: !options['no-browser'],
            printError,
            signal,
          });
          const { user } = await gatewayClient(server.url, login.token).accounts.getMe(undefined, { signal });
          return { ...login, userName: user.email ?? user.display_name ?? user.user_id };
        });
        await storeToken(env, server, token);
        if (options.json)
          print(
            JSON.stringify({ url: server.url, profile: server.name, user: userName, expires_at: expiresAt }),
          );
        else {
          print(`You are logged in at ${server.url} as ${userName}, until ${expiresAt.slice(0, 10)}.`);
          print(`The profile "${server.name}" is in use. "townhall logout" ends it.`);
        }
        return 0;
      },
    }),
  ],
  notes: [
    '  townhall login --url https://models.example.com --bureau shop',
    '  townhall login --no-browser            # on a machine without a browser',
  ],
};

interface TokenRequest {
  bureauId: string;
  opensBrowser: boolean;
  printError: (line: string) => void;
  signal: AbortSignal;
}

async function requestToken(
  { url }: ServerChoice,
  request: TokenRequest,
): Promise<{ token: string; expiresAt: string }> {
  const client = gatewayClient(url);
  const localLogin = await loginLocally(client, request);
  if (localLogin !== undefined) return localLogin;
  const credential = await loginByDevice({ ...request, client, name: deviceName('townhall login') });
  return { token: credential.user_token, expiresAt: credential.expires_at };
}

/** Undefined where the server has no login without a password for this machine. */
async function loginLocally(
  client: GatewayClient,
  { bureauId, signal }: TokenRequest,
): Promise<{ token: string; expiresAt: string } | undefined> {
  const { items } = await client.accounts.listProviders({ bureau_id: bureauId }, { signal });
  if (!items.some(({ kind }) => kind === 'instant')) return undefined;
  try {
    const { userToken, expiresAt } = await client.login({ bureauId, provider: 'local', signal });
    return { token: userToken, expiresAt: expiresAt.toISOString() };
  } catch (error) {
    if (GatewayError.isInstance(error) && error.status === 404) return undefined;
    throw error;
  }
}

async function storeToken(env: Environment, { url, name }: ServerChoice, token: string): Promise<void> {
  const file = tokenPath(env, name, 'user');
  await writeToken(file, token);
  const { profiles } = await readProfiles(env);
  const profile = { ...profiles[name], url, token_file: file };
  await writeProfiles(env, { current: name, profiles: { ...profiles, [name]: profile } });
}
