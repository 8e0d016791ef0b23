// The JSON file that configures plugins, MCP servers and services. It is read once, at the start.
import { readFile } from 'node:fs/promises';
import { compileSchema, type JsonSchema } from '../../kernel/contract/schema.ts';
import { SettingError } from '../../kernel/settings.ts';
import type { McpServer } from './definition/mcp-server.ts';
import type { PluginConfig } from './registry.ts';
import { listErrors } from './tool.ts';

/** A command that the agent keeps running as a service. */
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

/** Without a path nothing is configured. Throws a SettingError that names each member which does not fit. */
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
  const result = compileSchema(fileSchema)(content);
  if (!result.ok) {
    throw new SettingError(
      `--plugin-config: ${path} does not fit: ${listErrors(result.details, 'the file')}.`,
    );
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
