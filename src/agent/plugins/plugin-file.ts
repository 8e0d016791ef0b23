// The JSON file that configures plugins, MCP servers and services. It is read once, at the start.
import { readFile } from 'node:fs/promises';
import { compileSchema, type JsonSchema } from '../../kernel/contract/schema.ts';
import { SettingError } from '../../kernel/settings.ts';
import type { SandboxSettings } from '../processes/index.ts';
import type { McpServer } from './definition/mcp-server.ts';
import type { PluginConfig } from './registry.ts';
import { listErrors } from './tool.ts';

/** A command that the agent keeps running as a service. */
export interface ProcessDefinition {
  title?: string;
  command: string[];
  env?: Record<string, string>;
  sandbox?: SandboxSettings;
  autostart?: boolean;
  commands?: Record<string, { description?: string; command: string[] }>;
}

/** A rule for calls of tools. */
export interface RuleDefinition {
  tool: string;
  pattern?: string;
  effect: 'allow' | 'ask' | 'deny';
  expiresAt?: string;
}

export interface PluginFile {
  permissions: readonly RuleDefinition[];
  plugins: ReadonlyMap<string, PluginConfig>;
  mcpServers: ReadonlyMap<string, McpServer>;
  services: ReadonlyMap<string, ProcessDefinition>;
}

const strings = { type: 'array', items: { type: 'string' } };
const stringMap = { type: 'object', additionalProperties: { type: 'string' } };
const argv = { ...strings, minItems: 1 };
const nameSchema = { type: 'string', pattern: '^[a-z][a-z0-9-]{0,30}$' };

const absolutePaths = { type: 'array', items: { type: 'string', pattern: '^/' } };
const sandbox = {
  anyOf: [
    { const: false },
    {
      type: 'object',
      properties: { network: { type: 'boolean' }, read: absolutePaths, write: absolutePaths },
      additionalProperties: false,
    },
  ],
};

const fileSchema: JsonSchema = {
  type: 'object',
  properties: {
    permissions: {
      type: 'array',
      items: {
        type: 'object',
        required: ['tool', 'effect'],
        properties: {
          tool: { type: 'string', pattern: '^[a-z*][a-z0-9*-]{0,62}(\\.[a-z0-9*-]{1,63})?$' },
          pattern: { type: 'string', minLength: 1, maxLength: 1000 },
          effect: { enum: ['allow', 'ask', 'deny'] },
          expiresAt: { type: 'string', pattern: '^\\d{4}-\\d{2}-\\d{2}(T[0-9:.]+Z)?$' },
        },
        additionalProperties: false,
      },
    },
    plugins: {
      type: 'object',
      propertyNames: nameSchema,
      additionalProperties: {
        type: 'object',
        properties: { enabled: { type: 'boolean' }, settings: { type: 'object' } },
        additionalProperties: false,
      },
    },
    mcpServers: {
      type: 'object',
      propertyNames: nameSchema,
      additionalProperties: {
        type: 'object',
        properties: {
          command: { type: 'string', minLength: 1 },
          args: strings,
          env: stringMap,
          cwd: { type: 'string' },
          sandbox,
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
      propertyNames: nameSchema,
      additionalProperties: {
        type: 'object',
        required: ['command'],
        properties: {
          title: { type: 'string' },
          command: argv,
          env: stringMap,
          sandbox,
          autostart: { type: 'boolean' },
          commands: {
            type: 'object',
            propertyNames: nameSchema,
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

/** The content of the file; all members are optional. */
interface FileContent {
  permissions?: RuleDefinition[];
  plugins?: Record<string, PluginConfig>;
  mcpServers?: Record<string, McpServer>;
  services?: Record<string, ProcessDefinition>;
}

/** Empty without a path. Throws a SettingError that names each invalid member. */
export async function readPluginFile(path: string | undefined): Promise<PluginFile> {
  const {
    permissions = [],
    plugins = {},
    mcpServers = {},
    services = {},
  } = path === undefined ? {} : await readContent(path);
  return {
    permissions,
    plugins: new Map(Object.entries(plugins)),
    mcpServers: new Map(Object.entries(mcpServers)),
    services: new Map(Object.entries(services)),
  };
}

async function readContent(path: string): Promise<FileContent> {
  const text = await readFile(path, 'utf8').catch(() => {
    throw new SettingError(`--plugin-config: the file ${path} cannot be read.`);
  });
  const content = parse(path, text);
  const result = compileSchema(fileSchema)(content);
  if (!result.ok) {
    throw new SettingError(`--plugin-config: ${path} is invalid: ${listErrors(result.details, 'the file')}.`);
  }
  const { permissions = [], mcpServers = {} } = content as FileContent;
  requireExpiries(path, permissions);
  requireAddresses(path, mcpServers);
  return content as FileContent;
}

function parse(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new SettingError(`--plugin-config: the file ${path} is not JSON.`);
  }
}

// `Date` parses an impossible day, such as February 30, as a later one or as an invalid date, and a
// rule with an invalid date would count as expired.
function requireExpiries(path: string, rules: readonly RuleDefinition[]): void {
  for (const [index, { expiresAt }] of rules.entries()) {
    if (expiresAt === undefined) continue;
    const time = new Date(expiresAt);
    if (Number.isNaN(time.getTime()) || !time.toISOString().startsWith(expiresAt.slice(0, 10)))
      throw new SettingError(
        `--plugin-config: ${path} is invalid: permissions[${index}].expiresAt is ` +
          `${JSON.stringify(expiresAt)}, which is not a valid time; write one such as 2027-01-31 or ` +
          '2027-01-31T12:00:00Z.',
      );
  }
}

// The schema checks only how an address begins.
function requireAddresses(path: string, servers: Readonly<Record<string, McpServer>>): void {
  for (const [name, server] of Object.entries(servers))
    if ('url' in server && !URL.canParse(server.url))
      throw new SettingError(
        `--plugin-config: ${path} is invalid: mcpServers.${name}.url is ${JSON.stringify(server.url)}, ` +
          'which is not an address; write one such as https://mcp.example.com/mcp.',
      );
}
