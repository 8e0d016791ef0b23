// Control handlers for commands on this machine, over a 0600 socket in the data folder. A caller
// that can read the folder can read the token file, too, so the socket needs no token.
import { join } from 'node:path';
import { assetPath } from '../kernel/assets.ts';
import { serveControl, type Control, type ControlHandler } from '../kernel/control.ts';
import { databaseControls } from '../kernel/data/database-controls.ts';
import type { Database } from '../kernel/data/database.ts';
import { id } from '../kernel/ids.ts';
import type { Log } from '../kernel/log.ts';
import { Problem } from '../kernel/problem.ts';
import type { PluginCore } from './plugins/index.ts';
import type { TokenAdmin } from './tokens/index.ts';

/** The path of an agent's socket. */
export function controlPath(dataDir: string): string {
  return join(dataDir, 'control.sock');
}

// sun_path of sockaddr_un holds 104 bytes on macOS, 108 on Linux.
const maxPathBytes = 100;

/**
 * Undefined, with a warning in the log, when the socket cannot be opened; the agent runs without
 * it.
 */
export async function openControl({
  dataDir,
  database,
  tokens,
  pluginCore,
  log,
}: {
  dataDir: string;
  database: Database;
  tokens: TokenAdmin;
  pluginCore: PluginCore;
  log: Log;
}): Promise<Control | undefined> {
  const path = controlPath(dataDir);
  if (Buffer.byteLength(path) > maxPathBytes) {
    log.warn(
      { path },
      'the path of the control socket is too long; commands on this machine cannot reach the agent',
    );
    return undefined;
  }
  const stop = new AbortController();
  const handlers: Record<string, ControlHandler> = {
    ...databaseControls(database, { schema: 'agent', directory: assetPath('src/agent/migrations') }),
    'tokens.create': (input) => tokens.create(input as { name: string; ttlSeconds?: number }),
    'tokens.list': () => tokens.list(),
    'tokens.revoke': (input) => tokens.revoke(String(input)),
    'plugins.call': (input) => callPlugin(pluginCore, input, { signal: stop.signal, log }),
  };
  try {
    const control = await serveControl(path, handlers, { log });
    return {
      close() {
        stop.abort();
        return control.close();
      },
    };
  } catch (error) {
    // For example, another replica with the same folder serves the socket; its commands change the same data.
    log.warn({ err: error, path }, 'the control socket cannot be opened');
    return undefined;
  }
}

function callPlugin(
  pluginCore: PluginCore,
  input: unknown,
  { signal, log }: { signal: AbortSignal; log: Log },
): Promise<unknown> {
  const { plugin, action, payload } = input as { plugin: unknown; action: unknown; payload: unknown };
  if (typeof payload !== 'object' || payload === null || Array.isArray(payload))
    throw new Problem('bad_request', 'invalid_request', 'The payload of an action must be an object.');
  return pluginCore.call({
    plugin: String(plugin),
    action: String(action),
    payload: payload as Record<string, unknown>,
    caller: 'command',
    callId: id('req'),
    signal,
    log,
  });
}
