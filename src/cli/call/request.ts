// Builds the request of `townhall call` from the command line. The contract decides whether a NAME=VALUE
// goes into the path, the query, the headers or the body.
import { readFile } from 'node:fs/promises';
import { SettingError } from '../../kernel/settings.ts';
import { suggest } from '../command-line/suggestion.ts';
import { explainRefusal, findCredential, type Refusal, type Server } from './credential.ts';
import { createForm, isFormType, type FormField } from './form.ts';
import { readLocalServers, type LocalServer } from './local-edition.ts';
import type { CallableOperation, Member, Surface } from './operations.ts';
import { readCurrentProfile } from './profiles.ts';

export interface RequestOptions {
  surface: Surface;
  body: string | undefined;
  url: string | undefined;
  tokenFile: string | undefined;
  env: Readonly<Record<string, string | undefined>>;
}

export interface BuiltRequest {
  request: Request;
  /** Names the token that was sent and the remedy, for a refused credential. */
  explainRefusal(refusal: Refusal): string | undefined;
}

/** Throws a SettingError for a member that the operation lacks, and for a missing path parameter. */
export async function buildRequest(
  operation: CallableOperation,
  pairs: readonly string[],
  options: RequestOptions,
): Promise<BuiltRequest> {
  const { path, query, headers, body, form } = placeMembers(operation, pairs);
  const server = await chooseServer(options);
  const url = new URL(requireHttpUrl(server.url));
  url.pathname = `${url.pathname.replace(/\/$/, '')}${path}`;
  for (const [name, text] of query) url.searchParams.append(name, text);
  const content = isFormType(operation.bodyType)
    ? await readForm(operation, form, options.body)
    : await readBody(operation, body, options.body);
  const credential = await findCredential(operation, server, options);
  if (credential !== undefined) headers.set('authorization', `Bearer ${credential.token}`);
  headers.set('accept', '*/*');
  // The type of FormData has a boundary, which `Request` adds.
  if (operation.bodyType !== undefined && !(content instanceof FormData))
    headers.set('content-type', operation.bodyType);
  const request = new Request(url, { method: operation.method, headers, body: content });
  return {
    request,
    explainRefusal: (refusal) => explainRefusal(refusal, operation, { credential, server }),
  };
}

interface PlacedMembers {
  /** The operation's path with all parameters filled in. */
  path: string;
  query: [name: string, text: string][];
  headers: Headers;
  body: Record<string, unknown>;
  /** The body of an operation that takes a form, instead of `body`. */
  form: FormField[];
}

function placeMembers(operation: CallableOperation, pairs: readonly string[]): PlacedMembers {
  const request: PlacedMembers = {
    path: operation.path,
    query: [],
    headers: new Headers(),
    body: {},
    form: [],
  };
  const isForm = isFormType(operation.bodyType);
  const names = new Set<string>();
  for (const pair of pairs) {
    const [, name = '', text = ''] = /^([^=]+)=(.*)$/s.exec(pair) ?? [];
    if (name === '') throw new SettingError(`"${pair}" is not of the form NAME=VALUE; see --help.`);
    const member = memberOf(operation, name);
    const isRepeatable = isForm && member.types.includes('array');
    if (names.has(member.name) && !isRepeatable) throw new SettingError(`${member.name} is set twice.`);
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
        if (isForm) request.form.push([member, text]);
        else request.body[member.name] = parseValue(member, text);
    }
  }
  const [missingParameter] = /(?<=\{)[^}]+/.exec(request.path) ?? [];
  if (missingParameter !== undefined)
    throw new SettingError(`${operation.operationId} needs ${missingParameter}=VALUE.`);
  return request;
}

function memberOf({ members, isBodyOpen, operationId }: CallableOperation, name: string): Member {
  const member = members.find(
    (candidate) =>
      candidate.name === name ||
      (candidate.place === 'header' && candidate.name.toLowerCase() === name.toLowerCase()),
  );
  if (member !== undefined) return member;
  if (isBodyOpen)
    return { name, place: 'body', isRequired: false, types: [], isFile: false, description: '' };
  const hint = suggest(
    name,
    members.map((candidate) => candidate.name),
  );
  throw new SettingError(`${operationId} has no "${name}"; --describe lists its members.${hint}`);
}

function fillPath(path: string, name: string, text: string, operation: CallableOperation): string {
  // An empty segment, and one of dots, which the normalization of URLs resolves, would lead to another route.
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

async function readBody(
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

async function readForm(
  { operationId, bodyType = '' }: CallableOperation,
  fields: readonly FormField[],
  option: string | undefined,
): Promise<FormData | string> {
  if (option !== undefined)
    throw new SettingError(
      `${operationId} takes a form, not --body; set its members by NAME=VALUE, and a file by NAME=@FILE.`,
    );
  return createForm(bodyType, fields);
}

async function readStandardInput(): Promise<string> {
  let text = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) text += chunk as string;
  return text;
}

const urlVariables: Record<Surface, string> = { gateway: 'TOWNHALL_URL', agent: 'TOWNHALL_AGENT_URL' };

/** Takes the server from --url, the environment, the profile or the local edition, in this order. */
async function chooseServer({ url, env, surface }: RequestOptions): Promise<Server> {
  const local = (await readLocalServers())[surface];
  const localAt = (address: string): LocalServer | undefined =>
    local.isRunning && URL.parse(address)?.origin === new URL(local.url).origin ? local : undefined;
  const address = url ?? (env[urlVariables[surface]] || undefined);
  if (address !== undefined) return { url: address, profile: undefined, local: localAt(address) };
  const profile = await readCurrentProfile(env);
  const profileUrl = surface === 'gateway' ? profile?.profile.url : profile?.profile.agent_url;
  if (profileUrl !== undefined) return { url: profileUrl, profile, local: localAt(profileUrl) };
  return { url: local.url, profile: undefined, local };
}
