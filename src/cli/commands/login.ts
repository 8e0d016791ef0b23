// `townhall login`: logs a person in to a gateway and stores the token for the other commands.
import { GatewayError, type GatewayClient } from '@townhall/gateway';
import { askForPassword, readLineFromTerminal, readPasswordFromPipe } from '../admin/password.ts';
import { SettingError } from '../../kernel/settings.ts';
import { action, type ActionCall, type Command } from '../command-line/command.ts';
import { deviceName, loginByDevice } from '../login/device-login.ts';
import { wrapText } from '../command-line/wrap-text.ts';
import { chooseServer, gatewayClient, type ServerChoice } from '../login/server.ts';
import { storeLogin } from '../login/token-file.ts';
import { untilCancelled } from '../login/until-cancelled.ts';

const options = {
  url: {
    kind: 'value',
    placeholder: 'URL',
    summary: 'The gateway; by default TOWNHALL_URL, the profile in use, or the local edition.',
  },
  profile: {
    kind: 'value',
    placeholder: 'NAME',
    summary: 'The profile to write; by default the one in use, or one named after the host.',
  },
  bureau: { kind: 'value', placeholder: 'ID', summary: 'The Bureau to log in to (local).' },
  'no-browser': { kind: 'switch', summary: 'Only print the address of the page.' },
  admin: { kind: 'switch', summary: 'Log in as an administrator, with ID and password.' },
  'admin-id': { kind: 'value', placeholder: 'ID', summary: "The administrator's ID; else you are asked." },
  'password-stdin': { kind: 'switch', summary: 'Read the password of --admin from standard input.' },
  json: { kind: 'switch', summary: 'Print the result as JSON.' },
} as const;

type LoginCall = ActionCall<typeof options>;

export const command: Command = {
  description: [
    'Logs you in to a gateway: it shows a code, which you confirm in a browser, on this machine or another. The token is',
    "stored as your user token in a profile, beside the administrator's and the agent's; commands use it from then on. For a",
    'local edition on this machine there is nothing to confirm. With --admin it asks for the ID and the password of an',
    'administrator instead.',
  ],
  actions: [
    action({
      options,
      async run(call) {
        const server = await chooseServer(call.options, call.env);
        return call.options.admin ? loginAsAdministrator(server, call) : loginAsUser(server, call);
      },
    }),
  ],
  notes: [
    '  townhall login --url https://models.example.com --bureau shop',
    '  townhall login --no-browser            # on a machine without a browser',
    '  townhall login --admin                 # for townhall users and other commands of administrators',
  ],
};

async function loginAsUser(server: ServerChoice, call: LoginCall): Promise<number> {
  const { options: flags, env, printError } = call;
  if (flags['admin-id'] !== undefined || flags['password-stdin'])
    throw new SettingError('--admin-id and --password-stdin belong to --admin.');
  const { token, userName, expiresAt } = await untilCancelled(async (signal) => {
    const login = await requestToken(server, {
      bureauId: flags.bureau ?? 'local',
      opensBrowser: !flags['no-browser'],
      printError,
      signal,
    });
    const { user } = await gatewayClient(server.url, login.token).accounts.getMe(undefined, { signal });
    return { ...login, userName: user.email ?? user.display_name ?? user.user_id };
  });
  await storeLogin(env, server, { identity: 'user', token });
  report(server, call, {
    jsonName: { user: userName },
    title: userName,
    expiresAt,
    shownExpiry: expiresAt.slice(0, 10),
  });
  return 0;
}

async function loginAsAdministrator(server: ServerChoice, call: LoginCall): Promise<number> {
  const { options: flags, env } = call;
  const adminId = flags['admin-id'] ?? (await readLineFromTerminal('Administrator ID: '));
  const password = flags['password-stdin'] ? await readPasswordFromPipe() : await askForPassword();
  const { session_token: token, expires_at: expiresAt } = await gatewayClient(server.url).admin.login({
    admin_id: adminId,
    password,
  });
  await storeLogin(env, server, { identity: 'admin', token });
  report(server, call, {
    jsonName: { admin: adminId },
    title: `the administrator ${adminId}`,
    expiresAt,
    shownExpiry: `${expiresAt.slice(0, 16).replace('T', ' ')} UTC`,
  });
  return 0;
}

function report(
  { url, name: profile }: ServerChoice,
  { options: { json, admin }, print, output }: LoginCall,
  login: { jsonName: object; title: string; expiresAt: string; shownExpiry: string },
): void {
  if (json) return print(JSON.stringify({ url, profile, ...login.jsonName, expires_at: login.expiresAt }));
  const lines = [
    `You are logged in at ${url} as ${login.title}, until ${login.shownExpiry}.`,
    `The profile "${profile}" is in use. "townhall logout${admin ? ' --admin' : ''}" ends it.`,
  ];
  for (const line of lines.flatMap((text) => wrapText(text, output.columns ?? Infinity))) print(line);
}

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

/** Undefined when the server offers this machine no login without a password. */
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
