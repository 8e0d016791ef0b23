// What commands on this machine may ask of a running agent, through the 0600 socket in its data folder: whoever may
// read the folder holds the token file anyway.
import { join } from 'node:path';
import { assetPath } from '../kernel/assets.ts';
import { serveControl, type Control } from '../kernel/control.ts';
import { databaseControls } from '../kernel/data/database-controls.ts';
import type { Database } from '../kernel/data/database.ts';
import { id } from '../kernel/ids.ts';
import type { Log } from '../kernel/log.ts';
import { Problem } from '../kernel/problem.ts';
import type { PluginCore } from './plugins/index.ts';
import type { TokenDesk } from './tokens/index.ts';

/** Where the socket of an agent lies. */
export function controlPath(dataDir: string): string {
  return join(dataDir, 'control.sock');
}

export interface AgentControlNeeds {
  dataDir: string;
  database: Database;
  tokens: TokenDesk;
  core: PluginCore;
  log: Log;
}

// The room for the path of a socket is that of the oldest systems.
const longestPath = 100;

/** Undefined, and a line in the log, when there can be no socket; the agent serves without it. */
export async function openControl({
  dataDir,
  database,
  tokens,
  core,
  log,
}: AgentControlNeeds): Promise<Control | undefined> {
  const path = controlPath(dataDir);
  if (Buffer.byteLength(path) > longestPath) {
    log.warn(
      { path },
      'the path of the control socket is too long; commands beside this agent cannot reach it',
    );
    return undefined;
  }
  const stopping = new AbortController();
  try {
    const control = await serveControl(
      path,
      {
        ...databaseControls(database, { schema: 'agent', directory: assetPath('src/agent/migrations') }),
        'tokens.create': (input) => tokens.create(input as { name: string; ttlSeconds?: number }),
        'tokens.list': () => tokens.list(),
        'tokens.revoke': (input) => tokens.revoke(String(input)),
        'plugins.call': (input) => {
          const { plugin, action, payload } = input as { plugin: unknown; action: unknown; payload: unknown };
          if (typeof payload !== 'object' || payload === null || Array.isArray(payload))
            throw new Problem('bad_request', 'invalid_request', 'The payload of an action is an object.');
          return core.call({
            plugin: String(plugin),
            action: String(action),
            payload: payload as Record<string, unknown>,
            door: 'command',
            callId: id('req'),
            signal: stopping.signal,
            log,
          });
        },
      },
      { log },
    );
    return {
      close() {
        stopping.abort();
        return control.close();
      },
    };
  } catch (error) {
    // Another replica over the same folder has it; that one changes the same data.
    log.warn({ err: error, path }, 'there is no control socket for this agent');
    return undefined;
  }
}
