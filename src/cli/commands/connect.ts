// `townhall connect`: points a coding agent at a gateway, with an API key of its own.
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { SettingError } from '../../kernel/settings.ts';
import { profilesFile } from '../call/profiles.ts';
import { action, jsonOption, type ActionCall, type Command } from '../command-line/command.ts';
import { readTtlSeconds } from '../command-line/duration.ts';
import { errorMessage } from '../command-line/error-message.ts';
import {
  previewEdits,
  readRecord,
  undoEdits,
  writeEdits,
  type ConnectionRecord,
} from '../connect/files/store.ts';
import { requestKey, revokeKey } from '../connect/key.ts';
import { makeTestCall } from '../connect/test-call.ts';
import type { Connection, Tool } from '../connect/tool.ts';
import { tools } from '../connect/tools.ts';
import { chooseServer, gatewayClient, type ServerChoice } from '../login/server.ts';
import { untilCancelled } from '../login/until-cancelled.ts';

const options = {
  url: {
    kind: 'value',
    placeholder: 'URL',
    summary: 'The gateway; by default TOWNHALL_URL, the profile or the local edition.',
  },
  profile: { kind: 'value', placeholder: 'NAME', summary: 'The profile whose login creates the key.' },
  bureau: {
    kind: 'value',
    placeholder: 'ID',
    summary: 'The Bureau to log in to if there is no login yet (local).',
  },
  model: {
    kind: 'value',
    placeholder: 'ID',
    summary: 'The model that the tool uses; "townhall models list" has them.',
  },
  models: {
    kind: 'value',
    placeholder: 'IDS',
    summary: 'Limit the key to these models, separated by commas.',
  },
  budget: {
    kind: 'value',
    placeholder: 'USD',
    summary: 'The most that the key can ever spend, in US dollars.',
  },
  ttl: {
    kind: 'value',
    placeholder: 'TIME',
    summary: 'How long the key lives, such as 30d; never longer than the login.',
  },
  'no-browser': { kind: 'switch', summary: 'Only print the address of the page.' },
  'no-test': { kind: 'switch', summary: 'Write the configuration without a test call.' },
  print: { kind: 'switch', summary: 'Show what would be written, with a placeholder as the key.' },
  undo: { kind: 'switch', summary: 'Restore the files and revoke the key.' },
  json: jsonOption,
} as const;

const toolArgument = { tool: { placeholder: 'TOOL', choices: tools.map(({ id }) => id) } } as const;

type ConnectCall = ActionCall<typeof options, typeof toolArgument>;

export const command: Command = {
  description: [
    'Points a coding agent at a gateway: creates an API key, writes the configuration of the tool, and makes one call in the',
    "tool's own format. It keeps everything else in the files, and --undo restores them.",
  ],
  actions: [
    action({
      arguments: toolArgument,
      options,
      async run(call) {
        // `choices` admits only the ids of the tools.
        const tool = tools.find(({ id }) => id === call.arguments.tool) as Tool;
        if (call.options.undo) return undo(tool, call);
        const server = await chooseServer(call.options, call.env);
        if (call.options.print) return preview(tool, server, call);
        return untilCancelled((signal) => connect(tool, server, call, signal));
      },
    }),
  ],
  notes: [
    'Without a login ("townhall login"), you confirm the key in a browser.',
    '',
    '  townhall connect claude --url https://models.example.com --budget 20 --ttl 30d',
    '  townhall connect codex --print',
    '  townhall connect codex --undo',
  ],
};

async function connect(
  tool: Tool,
  server: ServerChoice,
  call: ConnectCall,
  signal: AbortSignal,
): Promise<number> {
  const { options: flags, env, printError } = call;
  const { token, expiresAt } = await requestKey(server, {
    title: tool.title,
    bureauId: flags.bureau ?? 'local',
    limits: readLimits(flags),
    opensBrowser: !flags['no-browser'],
    printError,
    signal,
  });
  const { model, paths } = await writeConfiguration(tool, server, call, token);
  if (model.startsWith('local/'))
    printError(`${model} is a model for trials; add a provider and name one of its models with --model.`);
  const connection = { ...connectionOf(server, env), token, model };
  const test = flags['no-test'] ? null : await testConfiguration(tool, connection, signal);
  const summary = { tool: tool.id, url: server.url, model, files: paths, expires_at: expiresAt, test };
  report(call, summary, [
    `${tool.title} uses ${model} at ${server.url}; its key expires on ${expiresAt.slice(0, 10)}.`,
    ...paths.map((path) => `  ${path}`),
    ...(test === null ? [] : [`Tested: POST ${test.path} answered after ${test.duration_ms} ms.`]),
    `Start it with: ${tool.start(connection).join('\n')}`,
    `"townhall connect ${tool.id} --undo" restores the files and revokes the key.`,
  ]);
  return 0;
}

/** Replaces an earlier connection of the tool. Revokes the new key if it could not be written. */
async function writeConfiguration(
  tool: Tool,
  server: ServerChoice,
  { options: flags, env }: ConnectCall,
  token: string,
): Promise<{ model: string; paths: string[] }> {
  const recordFile = recordFileOf(tool, env);
  try {
    const model = flags.model ?? (await chooseModel(tool, server.url, token));
    const formerRecord = await readRecord(recordFile);
    if (formerRecord !== null) await restore(recordFile, formerRecord);
    const edits = tool.edits({ ...connectionOf(server, env), token, model });
    await writeEdits(recordFile, { tool: tool.id, url: server.url, token }, edits);
    return { model, paths: edits.map(({ path }) => path) };
  } catch (error) {
    if ((await readRecord(recordFile))?.token !== token) await revokeKey(server.url, token);
    throw error;
  }
}

async function testConfiguration(
  tool: Tool,
  connection: Connection,
  signal: AbortSignal,
): Promise<{ path: string; duration_ms: number }> {
  try {
    const { path, durationMs } = await makeTestCall(tool.format, connection, signal);
    return { path, duration_ms: durationMs };
  } catch (error) {
    const reason = errorMessage(error).replace(/\.$/, '');
    const advice = `"townhall connect ${tool.id} --undo" restores the files`;
    throw new Error(`the files are written, but the test call failed: ${reason}; ${advice}.`, {
      cause: error,
    });
  }
}

async function preview(tool: Tool, server: ServerChoice, call: ConnectCall): Promise<number> {
  const model = call.options.model ?? 'MODEL';
  const connection = { ...connectionOf(server, call.env), token: 'th_usr_YOUR_KEY', model };
  const files = await previewEdits(tool.edits(connection));
  report(
    call,
    { files },
    files.flatMap(({ path, text }) => [`# ${path}`, text.trimEnd(), '']),
  );
  return 0;
}

async function undo(tool: Tool, call: ConnectCall): Promise<number> {
  const recordFile = recordFileOf(tool, call.env);
  const record = await readRecord(recordFile);
  if (record === null) throw new SettingError(`${tool.title} is not connected.`);
  const { lines, isRevoked } = await restore(recordFile, record);
  report(call, { files: lines, revoked: isRevoked }, [
    ...lines,
    isRevoked
      ? 'The key is revoked.'
      : `The key could not be revoked at ${record.url}; see "townhall keys list".`,
  ]);
  return 0;
}

/** Prints the value with --json, else the lines. */
function report({ options: flags, print }: ConnectCall, value: object, lines: readonly string[]): void {
  if (flags.json) print(JSON.stringify(value));
  else for (const line of lines) print(line);
}

/** Restores the files and revokes the key. A failed revocation is reported in the result, not thrown. */
async function restore(
  recordFile: string,
  record: ConnectionRecord,
): Promise<{ lines: string[]; isRevoked: boolean }> {
  const lines = await undoEdits(recordFile, record);
  return { lines, isRevoked: await revokeKey(record.url, record.token) };
}

function connectionOf(
  { url }: ServerChoice,
  env: ConnectCall['env'],
): Pick<Connection, 'url' | 'home' | 'env'> {
  return { url, home: env['HOME'] || homedir(), env };
}

function recordFileOf({ id }: Tool, env: ConnectCall['env']): string {
  return join(dirname(profilesFile(env)), 'connect', `${id}.json`);
}

function readLimits({ models, budget, ttl }: ConnectCall['options']) {
  const dollars = budget === undefined ? undefined : Number(budget);
  if (dollars !== undefined && !(dollars > 0 && dollars <= 1_000_000))
    throw new SettingError(`--budget takes US dollars, such as 20 or 0.50; not "${budget}".`);
  return {
    ...(models === undefined ? {} : { models: models.split(',').map((id) => id.trim()) }),
    ...(dollars === undefined ? {} : { credit_cap: Math.round(dollars * 1_000_000) }),
    ...(ttl === undefined ? {} : { ttl: readTtlSeconds(ttl) }),
  };
}

/** Prefers a model that suits the tool, then any other model of a provider, then a local model. */
async function chooseModel(tool: Tool, url: string, token: string): Promise<string> {
  const { items } = await gatewayClient(url, token).ai.listModels();
  const ids = items.filter(({ modalities }) => modalities.includes('text')).map(({ id }) => id);
  const model =
    ids.find((id) => tool.preferredModel.test(id)) ?? ids.find((id) => !id.startsWith('local/')) ?? ids[0];
  if (model === undefined)
    throw new Error('the gateway offers no text model; set one up, or name one with --model.');
  return model;
}
