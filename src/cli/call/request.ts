// Builds the request of `townhall call` from the command line: by the contract, each NAME=VALUE
// belongs to the path, the query, the headers or the body.
import { readFile } from 'node:fs/promises';
import { agentSettings } from '../../agent/config.ts';
import { consoleSettings } from '../../console/config.ts';
import { SettingError } from '../../kernel/settings.ts';
import { suggestion } from '../command-line/suggestion.ts';
import type { CallableOperation, Member, Surface } from './operations.ts';

/** A local edition started in this folder. */
export const localServers: Record<Surface, { url: string; tokenFile: string }> = {
  gateway: { url: agentSettings.gatewayUrl.fallback, tokenFile: 'data/local.token' },
  agent: { url: consoleSettings.agentUrl.fallback, tokenFile: 'data/agent/agent.token' },
};

export interface RequestOptions {
  surface: Surface;
  body: string | undefined;
  url: string | undefined;
  tokenFile: string | undefined;
  env: Readonly<Record<string, string | undefined>>;
}

/** Throws a SettingError for a pair that the operation lacks, and for a missing path parameter. */
export async function buildRequest(
  operation: CallableOperation,
  pairs: readonly string[],
  options: RequestOptions,
): Promise<Request> {
  const { path, query, headers, body } = placeMembers(operation, pairs);
  const url = new URL(requireHttpUrl(serverUrl(options)));
  url.pathname = `${url.pathname.replace(/\/$/, '')}${path}`;
  for (const [name, text] of query) url.searchParams.append(name, text);
  const bodyText = await bodyOf(operation, body, options.body);
  const token = await tokenFor(operation, options);
  if (token !== undefined) headers.set('authorization', `Bearer ${token}`);
  headers.set('accept', '*/*');
  if (operation.bodyType !== undefined) headers.set('content-type', operation.bodyType);
  return new Request(url, { method: operation.method, headers, body: bodyText });
}

interface PlacedMembers {
  /** The operation's path with all parameters filled in. */
  path: string;
  query: [name: string, text: string][];
  headers: Headers;
  body: Record<string, unknown>;
}

function placeMembers(operation: CallableOperation, pairs: readonly string[]): PlacedMembers {
  const request: PlacedMembers = { path: operation.path, query: [], headers: new Headers(), body: {} };
  const names = new Set<string>();
  for (const pair of pairs) {
    const [, name = '', text = ''] = /^([^=]+)=(.*)$/s.exec(pair) ?? [];
    if (name === '') throw new SettingError(`"${pair}" is not of the form NAME=VALUE; see --help.`);
    const member = memberOf(operation, name);
    if (names.has(member.name)) throw new SettingError(`${member.name} is set twice.`);
    names.add(member.name);
    switch (member.place) {
      case 'path':
        request.path = fillPath(request.path, member.name, text, operation);
        break;
      case 'query':
        request.query.push([member.name, text]);
        break;
      case 'header':
        request.headers.set(member.name, text);
        break;
      case 'body':
        request.body[member.name] = parseValue(member, text);
    }
  }
  const [missing] = /(?<=\{)[^}]+/.exec(request.path) ?? [];
  if (missing !== undefined) throw new SettingError(`${operation.operationId} needs ${missing}=VALUE.`);
  return request;
}

function memberOf({ members, isBodyOpen, operationId }: CallableOperation, typed: string): Member {
  const member = members.find(
    ({ name, place }) => name === typed || (place === 'header' && name.toLowerCase() === typed.toLowerCase()),
  );
  if (member !== undefined) return member;
  if (isBodyOpen) return { name: typed, place: 'body', isRequired: false, types: [], description: '' };
  const hint = suggestion(
    typed,
    members.map(({ name }) => name),
  );
  throw new SettingError(`${operationId} has no "${typed}"; --describe lists its members.${hint}`);
}

function fillPath(path: string, name: string, text: string, operation: CallableOperation): string {
  // URL normalization would resolve a segment of dots and call another route.
  if (/^\.{0,2}$/.test(text))
    throw new SettingError(`${name} cannot be "${text}"; it is part of the address ${operation.path}.`);
  return path.replace(`{${name}}`, () => encodeURIComponent(text));
}

// `limit=5` becomes a number or a string by the member's type. A member of several types is read as
// JSON if it is valid JSON.
function parseValue({ name, types }: Member, text: string): unknown {
  if (types.length === 1 && types[0] === 'string') return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    if (types.length === 0 || types.includes('string')) return text;
    throw new SettingError(`${name} takes ${types.join(' or ')}, written as JSON.`);
  }
}

function requireHttpUrl(text: string): string {
  if (!/^https?:$/.test(URL.parse(text)?.protocol ?? ''))
    throw new SettingError(
      `"${text}" is not an address such as http://127.0.0.1:43127; see --url and TOWNHALL_URL.`,
    );
  return text;
}

async function bodyOf(
  { operationId, bodyType }: CallableOperation,
  members: Readonly<Record<string, unknown>>,
  option: string | undefined,
): Promise<string | null> {
  if (option !== undefined && Object.keys(members).length > 0)
    throw new SettingError('set the body by --body or by NAME=VALUE, not by both.');
  if (option !== undefined && bodyType === undefined) throw new SettingError(`${operationId} has no body.`);
  if (bodyType === undefined) return null;
  if (option === undefined) return JSON.stringify(members);
  if (option === '-') return readStandardInput();
  return option.startsWith('@') ? readFile(option.slice(1), 'utf8') : option;
}

async function readStandardInput(): Promise<string> {
  let text = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) text += chunk as string;
  return text;
}

const urlVariables: Record<Surface, string> = { gateway: 'TOWNHALL_URL', agent: 'TOWNHALL_AGENT_URL' };

/** The address by the option or the environment; undefined for the local edition. */
function namedUrl({ url, env, surface }: RequestOptions): string | undefined {
  return url ?? (env[urlVariables[surface]] || undefined);
}

function serverUrl(options: RequestOptions): string {
  return namedUrl(options) ?? localServers[options.surface].url;
}

/** Each kind of caller has a variable of its own; TOWNHALL_TOKEN stands for all of them. */
function tokenVariables({ credentials }: CallableOperation): string[] {
  const names: Readonly<Record<string, string>> = {
    adminSession: 'TOWNHALL_ADMIN_TOKEN',
    machineCredential: 'TOWNHALL_ADMIN_TOKEN',
    agentToken: 'TOWNHALL_AGENT_TOKEN',
  };
  // An operation for users and administrators takes the user's token where there is one.
  const own = credentials.includes('userToken') ? [] : credentials.flatMap((scheme) => names[scheme] ?? []);
  const others = credentials.flatMap((scheme) => names[scheme] ?? []);
  return [...new Set([...own, 'TOWNHALL_TOKEN', ...others])];
}

/** The token of a local edition is sent to its own address only, never to another one. */
async function tokenFor(operation: CallableOperation, options: RequestOptions): Promise<string | undefined> {
  const { tokenFile, env, surface } = options;
  if (tokenFile !== undefined) return (await readFile(tokenFile, 'utf8')).trim();
  for (const name of tokenVariables(operation)) if ((env[name] ?? '') !== '') return env[name];
  if (namedUrl(options) !== undefined) return undefined;
  return (await readFile(localServers[surface].tokenFile, 'utf8').catch(() => '')).trim() || undefined;
}
