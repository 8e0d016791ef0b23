// The settings of the console: its own address and the address of its agent.
import { join, resolve } from 'node:path';
import { integer, optionalText, readSettings, SettingError, text } from '../kernel/settings.ts';

/** Every setting of `townhall console`; its `--help` is generated from this table. */
export const consoleSettings = {
  port: integer('CONSOLE_PORT', 5315, 'Port to listen on, at 127.0.0.1 only; 0 takes any free one.', {
    flag: 'port',
    min: 0,
    max: 65535,
  }),
  agentUrl: text('TOWNHALL_AGENT_URL', 'http://127.0.0.1:5314', 'Address of the agent.', {
    flag: 'agent-url',
  }),
  dataDir: text('AGENT_DATA_DIR', './data/agent', "The agent's data folder, which holds its token file.", {
    flag: 'data-dir',
  }),
  tokenFile: optionalText(
    'AGENT_TOKEN_FILE',
    "File with the agent's token, read for each call; agent.token in the data folder by default.",
    { flag: 'token-file' },
  ),
  codeTtlMs: integer('CONSOLE_CODE_TTL_MS', 600_000, 'How long an address with a one-time code is valid.', {
    flag: null,
    min: 60_000,
    max: 600_000,
  }),
  sessionTtlMs: integer(
    'CONSOLE_SESSION_TTL_MS',
    12 * 60 * 60 * 1000,
    'How long a browser stays signed in.',
    { flag: null, min: 60_000, max: 7 * 24 * 60 * 60 * 1000 },
  ),
};

/** Paths are absolute. */
export interface ConsoleConfig {
  port: number;
  agentUrl: string;
  tokenFile: string;
  codeTtlMs: number;
  sessionTtlMs: number;
}

/** Throws a SettingError that names the wrong setting. */
export function readConsoleConfig(
  flags: Readonly<Record<string, string | undefined>>,
  env: Readonly<Record<string, string | undefined>>,
): ConsoleConfig {
  const { dataDir, tokenFile, agentUrl, ...settings } = readSettings(consoleSettings, flags, env);
  return {
    ...settings,
    agentUrl: readAgentUrl(agentUrl),
    tokenFile: resolve(tokenFile ?? join(dataDir, 'agent.token')),
  };
}

// Every call carries the token, so an address on another machine must be https.
function readAgentUrl(address: string): string {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const isPlain =
    url !== undefined && url.username === '' && url.password === '' && url.search === '' && url.hash === '';
  const isLoopback =
    url?.protocol === 'http:' && /^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(url.hostname);
  if (!isPlain || !(isLoopback || url.protocol === 'https:'))
    throw new SettingError(
      '--agent-url takes an http address of this machine, or an https one, such as http://127.0.0.1:5314.',
    );
  return address.replace(/\/+$/, '');
}
