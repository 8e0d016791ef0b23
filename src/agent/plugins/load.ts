// Plugins from files, and the one file that configures plugins. Both are read at the start and never again, and never
// from a request: whoever may start the agent may give it code, and nobody else.
import { readFile, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { importFile, resolveTownhall } from '../../kernel/operator-code.ts';
import { SettingError } from '../../kernel/settings.ts';
import { compileSchema, type JsonSchema } from '../../kernel/contract/schema.ts';
import type { Containment, PluginOwner } from './containment.ts';
import type { Plugin } from './plugin.ts';
import type { PluginConfig } from './registry.ts';

/** One MCP server, as the field writes them: a command to run, or an address. */
export type McpServer =
  | {
      command: string;
      args?: string[];
      env?: Record<string, string>;
      cwd?: string;
      disabled?: boolean;
      approval?: McpApproval;
    }
  | { url: string; headers?: Record<string, string>; disabled?: boolean; approval?: McpApproval };

/** Which of a server's tools a person has to agree to: each one, none, or those that are not declared to only read. */
export type McpApproval = 'always' | 'never' | 'writes';

/** One program that the agent keeps running. */
export interface ProcessDefinition {
  title?: string;
  command: string[];
  env?: Record<string, string>;
  autostart?: boolean;
  commands?: Record<string, { description?: string; command: string[] }>;
}

export interface PluginFile {
  plugins: ReadonlyMap<string, PluginConfig>;
  mcpServers: ReadonlyMap<string, McpServer>;
  services: ReadonlyMap<string, ProcessDefinition>;
}

const strings = { type: 'array', items: { type: 'string' } };
const stringMap = { type: 'object', additionalProperties: { type: 'string' } };
const argv = { ...strings, minItems: 1 };
const names = { type: 'string', pattern: '^[a-z][a-z0-9-]{0,30}$' };

const fileSchema: JsonSchema = {
  type: 'object',
  properties: {
    plugins: {
      type: 'object',
      propertyNames: names,
      additionalProperties: {
        type: 'object',
        properties: { enabled: { type: 'boolean' }, settings: { type: 'object' } },
        additionalProperties: false,
      },
    },
    mcpServers: {
      type: 'object',
      propertyNames: names,
      additionalProperties: {
        type: 'object',
        properties: {
          command: { type: 'string', minLength: 1 },
          args: strings,
          env: stringMap,
          cwd: { type: 'string' },
          url: { type: 'string', pattern: '^https?://' },
          headers: stringMap,
          type: { type: 'string' },
          disabled: { type: 'boolean' },
          approval: { enum: ['always', 'never', 'writes'] },
        },
        oneOf: [{ required: ['command'] }, { required: ['url'] }],
        additionalProperties: false,
      },
    },
    services: {
      type: 'object',
      propertyNames: names,
      additionalProperties: {
        type: 'object',
        required: ['command'],
        properties: {
          title: { type: 'string' },
          command: argv,
          env: stringMap,
          autostart: { type: 'boolean' },
          commands: {
            type: 'object',
            propertyNames: names,
            additionalProperties: {
              type: 'object',
              required: ['command'],
              properties: { description: { type: 'string' }, command: argv },
              additionalProperties: false,
            },
          },
        },
        additionalProperties: false,
      },
    },
  },
  additionalProperties: false,
};

/** Reads the file; without a path nothing is configured. Throws a SettingError that says what does not fit. */
export async function readPluginFile(path: string | undefined): Promise<PluginFile> {
  if (path === undefined) return { plugins: new Map(), mcpServers: new Map(), services: new Map() };
  const text = await readFile(path, 'utf8').catch(() => {
    throw new SettingError(`--plugin-config: the file ${path} cannot be read.`);
  });
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    throw new SettingError(`--plugin-config: the file ${path} is not JSON.`);
  }
  const verdict = compileSchema(fileSchema)(content);
  if (!verdict.ok) {
    const faults = verdict.details
      .map((detail) => `${detail.path === '' ? 'the file' : detail.path} ${detail.message}`)
      .join('; ');
    throw new SettingError(`--plugin-config: ${path} does not fit: ${faults}.`);
  }
  const {
    plugins = {},
    mcpServers = {},
    services = {},
  } = content as {
    plugins?: Record<string, PluginConfig>;
    mcpServers?: Record<string, McpServer>;
    services?: Record<string, ProcessDefinition>;
  };
  return {
    plugins: new Map(Object.entries(plugins)),
    mcpServers: new Map(Object.entries(mcpServers)),
    services: new Map(Object.entries(services)),
  };
}

/**
 * The plugins of these files, in this order: the `plugin` or the default export of each. A file may import
 * `definePlugin` from `townhall` wherever it lies. Throws a SettingError that names the file at fault. The owner is
 * that of the plugin's code from its first line on.
 */
export async function loadPlugins(
  paths: readonly string[],
  containment: Containment,
): Promise<{ plugin: Plugin; owner: PluginOwner }[]> {
  const plugins: { plugin: Plugin; owner: PluginOwner }[] = [];
  if (paths.length === 0) return plugins;
  // A plugin lies anywhere, and has no node_modules of its own.
  const resolving = resolveTownhall(() => true);
  try {
    for (const path of paths) {
      const owner = containment.owner(path);
      const plugin = await owner.run(() => loadPlugin(resolve(path)));
      owner.name = plugin.name;
      plugins.push({ plugin, owner });
    }
  } finally {
    resolving.deregister();
  }
  return plugins;
}

async function loadPlugin(path: string): Promise<Plugin> {
  const isFile = await stat(path).then(
    (found) => found.isFile(),
    () => false,
  );
  if (!isFile) throw new SettingError(`--plugin: there is no file ${path}.`);
  let module: Record<string, unknown>;
  try {
    module = await importFile(path);
  } catch (cause) {
    throw new SettingError(
      `--plugin: ${path} cannot be loaded: ${cause instanceof Error ? cause.message : String(cause)}`,
    );
  }
  const found = module['plugin'] ?? module['default'];
  if (typeof found !== 'object' || found === null || !('name' in found) || !('actions' in found)) {
    throw new SettingError(
      `--plugin: ${path} exports no plugin; export what definePlugin returns, as \`plugin\` or as the default.`,
    );
  }
  return found as Plugin;
}
