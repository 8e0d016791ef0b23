// Opens the folder of the agent's tools. The data folder contains tokens and sessions, and the plugin
// configuration contains tokens of MCP servers. Tools must not read either: both are hidden if they are
// within a workspace, and a workspace within the data folder must be its subfolder `workspace`.
import { realpath } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { isWithin, makeFolder } from '../kernel/folder.ts';
import { SettingError } from '../kernel/settings.ts';
import type { AgentConfig } from './config.ts';
import { isWithinDatabase, openWorkspace, type Workspace } from './plugins/index.ts';

/**
 * Creates the default workspace when it does not exist. `hidden` are files and folders besides the
 * agent's own. Throws a SettingError for a folder that is missing or contains secrets.
 */
export async function prepareWorkspace(config: AgentConfig, hidden: readonly string[]): Promise<Workspace> {
  if (config.isDefaultWorkspace) await makeFolder(config.workspace);
  const folder = await realpath(config.workspace).catch((cause: unknown) => {
    throw new SettingError(
      `The workspace ${config.workspace} does not exist. Create the folder, or set another one with --workspace.`,
      { cause },
    );
  });
  const data = await realpath(config.dataDir);
  if (isWithin(folder, data) && !isWithin(folder, join(data, 'workspace'))) {
    throw new SettingError(
      `The workspace ${config.workspace} is part of the data folder, which holds the agent's ` +
        'tokens; name another one with --workspace.',
    );
  }
  if (!config.isDefaultWorkspace) await requireNoSecretFolder(config.workspace, folder, hidden);
  const files = [
    config.tokenFile,
    config.pluginConfig,
    'file' in config.gatewayToken ? config.gatewayToken.file : undefined,
  ].filter((file) => file !== undefined);
  return openWorkspace({ folder, hidden: [data, ...files, ...hidden].map((path) => resolve(path)) });
}

async function requireNoSecretFolder(
  workspace: string,
  folder: string,
  hidden: readonly string[],
): Promise<void> {
  const secretFolders = await Promise.all(hidden.map((path) => realpath(path).catch(() => resolve(path))));
  if (secretFolders.some((secret) => isWithin(folder, secret)) || (await isWithinDatabase(folder))) {
    throw new SettingError(
      `The workspace ${workspace} is part of a gateway's or a database's own folder; name another one with --workspace.`,
    );
  }
}
