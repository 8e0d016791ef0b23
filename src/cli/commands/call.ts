// `townhall call`: any operation of the contract from the command line, for whoever operates a server without a program of
// their own. It hides where a member goes and how an answer is printed; what is allowed is the server's to say.
import { open, readFile, rm } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { SettingError } from '../../kernel/settings.ts';
import { parseFlags } from '../command-line/command.ts';
import type { Command, CommandInput, ParsedArguments } from '../command-line/command.ts';
import { suggestion } from '../command-line/nearest.ts';
import {
  type CallableOperation,
  isText,
  type Member,
  readOperations,
  type Surface,
  surfaces,
} from '../call/operations.ts';

const local: Record<Surface, { url: string; tokenFile: string }> = {
  gateway: { url: 'http://127.0.0.1:43127', tokenFile: 'data/local.token' },
  agent: { url: 'http://127.0.0.1:5314', tokenFile: 'data/agent/agent.token' },
};

export const callCommand: Command = {
  help: () =>
    [
      'Usage: townhall call gateway|agent [OPERATION [NAME=VALUE ...]] [OPTIONS]',
      '',
      'Calls an operation of a running server by its name in the contract, such as env.upsertVariable, and prints the answer.',
      'A NAME is a member of its path, its query, its headers or its body; a VALUE that is no text is written as JSON.',
      'Without an operation it lists them all. The exit code is 1 when the server refuses or fails.',
      '',
      '  --describe             say what the operation takes, and call nothing',
      '  --body JSON            the whole body; @FILE reads it from a file, - from standard input',
      '  --url URL              the server (http://127.0.0.1:43127 for the gateway, http://127.0.0.1:5314 for the agent)',
      '  --token-file FILE      the credential; else TOWNHALL_TOKEN in the environment, else that of a local edition',
      '                         that was started in this folder, which is sent to this machine alone',
      '  --output FILE          write the answer into a new file; images and sound need it, or a pipe, before they are called for',
      '  --json                 print the answer, or the error, as JSON in one line',
      '',
      'A secret does not belong on a command line, where others can read it: give it in --body @FILE or --body -.',
      '',
      '  townhall call gateway ai.generateText model=local/guide prompt="How do I log in?"',
      '  townhall call gateway admin.login --body @credentials.json --json',
      '  townhall call gateway credits.grantCredits user_id=usr_… credits=500000 reason="a good start"',
      '  townhall call agent sessions.list limit=20',
    ].join('\n'),
  async run(input) {
    const { flags, words } = parseFlags(input.arguments, {
      flags: ['body', 'url', 'token-file', 'output'],
      switches: ['describe', 'json'],
    });
    const [named = '', operationId, ...given] = words;
    const surface = surfaces.find((name) => name === named);
    if (surface === undefined)
      throw new SettingError(
        `say of which server: "townhall call gateway" or "townhall call agent"; see --help.`,
      );
    const operations = await readOperations(surface);
    if (operationId === undefined) {
      list(operations, flags, input);
      return 0;
    }
    const operation = operations.find((each) => each.operationId === operationId);
    if (operation === undefined)
      throw new SettingError(
        `the ${surface} has no operation "${operationId}"; "townhall call ${surface}" lists them.${suggestion(
          operationId,
          operations.map((each) => each.operationId),
        )}`,
      );
    if (flags['describe'] === 'true') {
      describe(operation, flags, input);
      return 0;
    }
    const request = await requestOf(operation, given, { flags, surface, env: input.env });
    // What follows may cost credits: an answer with no place to go is refused before it is asked for.
    if (flags['output'] !== undefined) return callIntoFile(request, flags['output'], { flags, input });
    if (operation.binaryTypes.length > 0 && input.output.isTerminal) {
      throw new SettingError(
        `${operationId} answers with ${operation.binaryTypes.join(', ')}, which is not for a terminal; say --output FILE, or send standard output into a file or a pipe.`,
      );
    }
    return print(await send(request), flags, input);
  },
};

type Flags = ParsedArguments['flags'];

function overviewOf({ operationId, method, path, summary, credentials }: CallableOperation): object {
  return { operation_id: operationId, method, path, summary, credentials };
}

function list(operations: readonly CallableOperation[], flags: Flags, { print: say }: CommandInput): void {
  if (flags['json'] === 'true') return say(JSON.stringify(operations.map(overviewOf)));
  const width = Math.max(...operations.map(({ operationId }) => operationId.length)) + 2;
  for (const { operationId, summary } of operations) say(`${operationId.padEnd(width)}${summary}`);
}

function describe(operation: CallableOperation, flags: Flags, { print: say }: CommandInput): void {
  const { operationId, method, path, summary, description, credentials, members } = operation;
  if (flags['json'] === 'true') {
    return say(
      JSON.stringify({
        ...overviewOf(operation),
        description,
        members: members.map(({ isRequired, ...member }) => ({ ...member, required: isRequired })),
      }),
    );
  }
  const lines = [
    `${operationId}: ${summary}`,
    `${method} ${path}, ${credentials.length === 0 ? 'for everybody' : `with ${credentials.join(' or ')}`}`,
  ];
  if (description !== '') lines.push('', description.trim());
  if (members.length > 0) lines.push('');
  const width = Math.max(0, ...members.map(({ name }) => name.length)) + 2;
  for (const { name, place, isRequired, types, description: about } of members) {
    const kind = [types.join(' or ') || 'any', place === 'body' ? '' : place, isRequired ? 'required' : '']
      .filter(Boolean)
      .join(', ');
    lines.push(`  ${name.padEnd(width)}${kind}${about === '' ? '' : `: ${about.trim().split('\n', 1)[0]}`}`);
  }
  for (const line of lines) say(line);
}

async function requestOf(
  operation: CallableOperation,
  given: readonly string[],
  from: { flags: Flags; surface: Surface; env: CommandInput['env'] },
): Promise<Request> {
  const { flags, surface, env } = from;
  const url = new URL(baseOf(flags['url'] ?? local[surface].url));
  const headers = new Headers();
  const body: Record<string, unknown> = {};
  const said = new Set<string>();
  let path = operation.path;
  for (const word of given) {
    const [, name = '', text = ''] = /^([^=]+)=(.*)$/s.exec(word) ?? [];
    if (name === '') throw new SettingError(`"${word}" is no NAME=VALUE; see --help.`);
    const member = memberOf(operation, name);
    if (said.has(member.name)) throw new SettingError(`${member.name} is given twice.`);
    said.add(member.name);
    // A dotted segment would name another route, since addresses are normalized.
    if (member.place === 'path' && /^\.{0,2}$/.test(text))
      throw new SettingError(
        `${member.name} cannot be "${text}"; it is part of the address ${operation.path}.`,
      );
    if (member.place === 'path') path = path.replace(`{${member.name}}`, () => encodeURIComponent(text));
    else if (member.place === 'query') url.searchParams.append(member.name, text);
    else if (member.place === 'header') headers.set(member.name, text);
    else body[member.name] = valueOf(member, text);
  }
  const [missing] = /(?<=\{)[^}]+/.exec(path) ?? [];
  if (missing !== undefined) throw new SettingError(`${operation.operationId} needs ${missing}=VALUE.`);
  url.pathname = `${url.pathname.replace(/\/$/, '')}${path}`;
  const isSaid = Object.keys(body).length > 0;
  if (flags['body'] !== undefined && isSaid)
    throw new SettingError('give the body as --body or as NAME=VALUE, not as both.');
  if (flags['body'] !== undefined && operation.bodyType === undefined)
    throw new SettingError(`${operation.operationId} takes no body.`);
  const token = await tokenFor(flags, surface, env);
  if (token !== undefined) headers.set('authorization', `Bearer ${token}`);
  headers.set('accept', '*/*');
  if (operation.bodyType === undefined) return new Request(url, { method: operation.method, headers });
  headers.set('content-type', operation.bodyType);
  return new Request(url, {
    method: operation.method,
    headers,
    body: flags['body'] === undefined ? JSON.stringify(body) : await bodyFrom(flags['body']),
  });
}

function baseOf(text: string): string {
  if (!/^https?:$/.test(URL.parse(text)?.protocol ?? ''))
    throw new SettingError('--url takes an address such as http://127.0.0.1:43127.');
  return text;
}

function memberOf(operation: CallableOperation, name: string): Member {
  const member = operation.members.find(
    (each) =>
      each.name === name || (each.place === 'header' && each.name.toLowerCase() === name.toLowerCase()),
  );
  if (member !== undefined) return member;
  if (operation.isBodyOpen) return { name, place: 'body', isRequired: false, types: [], description: '' };
  const known = operation.members.map((each) => each.name);
  throw new SettingError(
    `${operation.operationId} takes no "${name}"; --describe says what it takes.${suggestion(name, known)}`,
  );
}

// `limit=5` is a number where a number is wanted and text where text is; what may be both is read as JSON where it is JSON.
function valueOf({ name, types }: Member, text: string): unknown {
  if (types.length === 1 && types[0] === 'string') return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    if (types.length === 0 || types.includes('string')) return text;
    throw new SettingError(`${name} takes ${types.join(' or ')}, written as JSON.`);
  }
}

async function bodyFrom(given: string): Promise<string> {
  if (given === '-') {
    let text = '';
    for await (const piece of process.stdin.setEncoding('utf8')) text += piece as string;
    return text;
  }
  return given.startsWith('@') ? readFile(given.slice(1), 'utf8') : given;
}

async function tokenFor(
  flags: Flags,
  surface: Surface,
  env: CommandInput['env'],
): Promise<string | undefined> {
  if (flags['token-file'] !== undefined) return (await readFile(flags['token-file'], 'utf8')).trim();
  const named = env['TOWNHALL_TOKEN'] ?? '';
  if (named !== '') return named;
  return flags['url'] === undefined
    ? (await readFile(local[surface].tokenFile, 'utf8').catch(() => '')).trim() || undefined
    : undefined;
}

async function send(request: Request): Promise<Response> {
  try {
    return await fetch(request);
  } catch (error) {
    const { cause } = error as { cause?: { code?: string; message?: string } };
    throw new Error(
      `${new URL(request.url).origin} does not answer (${cause?.code ?? cause?.message ?? String(error)}).`,
      { cause: error },
    );
  }
}

async function print(
  response: Response,
  flags: Flags,
  { print: say, complain, isHeard, output }: CommandInput,
): Promise<number> {
  const type = response.headers.get('content-type')?.split(';', 1)[0]?.trim() ?? '';
  const asJson = flags['json'] === 'true';
  if (!response.ok) {
    const text = await response.text();
    if (asJson && text !== '') say(text);
    else complain(`townhall call: ${response.status} ${faultOf(text)}`);
    return 1;
  }
  if (!isText(type)) {
    for await (const piece of response.body ?? []) {
      if (!isHeard()) break;
      // Only a server that answers otherwise than the contract says gets here with a terminal.
      if (output.isTerminal)
        throw new Error(
          `the answer is ${type || 'of no known type'}, which is not for a terminal; say --output FILE.`,
        );
      await output.write(piece);
    }
    return 0;
  }
  if (!/[/+]json$/.test(type)) {
    for await (const line of linesOf(response)) {
      if (!isHeard()) break;
      say(line);
    }
    return 0;
  }
  const text = await response.text();
  if (text === '') return 0;
  say(asJson ? text : JSON.stringify(JSON.parse(text), null, 2));
  return 0;
}

function faultOf(text: string): string {
  try {
    const { error } = JSON.parse(text) as {
      error: { code: string; message: string; param: string | null; request_id: string };
    };
    return `${error.code}: ${error.message}${error.param === null ? '' : ` (${error.param})`} [${error.request_id}]`;
  } catch {
    return text.slice(0, 300);
  }
}

/** Makes the file, for its owner alone, and only then calls. The file holds the whole answer, or is removed. */
async function callIntoFile(
  request: Request,
  path: string,
  { flags, input }: { flags: Flags; input: CommandInput },
): Promise<number> {
  const file = await open(path, 'wx', 0o600);
  let isWhole = false;
  try {
    const response = await send(request);
    if (!response.ok) return await print(response, flags, input);
    if (response.body !== null) await pipeline(response.body, file.createWriteStream({ autoClose: false }));
    isWhole = true;
    return 0;
  } finally {
    await file.close();
    if (!isWhole) await rm(path, { force: true });
  }
}

async function* linesOf(response: Response): AsyncGenerator<string> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const piece of response.body ?? []) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
  if (rest !== '') yield rest;
}
