// `townhall logs`: shows the log of a running local edition, or of a file or pipe. A request id finds the
// line with the model, the provider, the attempts and the provider's own error message.
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { callControl } from '../../kernel/control.ts';
import { systemClock } from '../../kernel/clock.ts';
import { Problem } from '../../kernel/problem.ts';
import { SettingError } from '../../kernel/settings.ts';
import { callGateway, findGatewayOperation } from '../call/resource.ts';
import { action, type Command, type CommandContext } from '../command-line/command.ts';
import { escapeControls } from '../command-line/escape-controls.ts';
import { gatewayDatabase } from '../data/database-location.ts';
import { dataOptions, readConfigHere } from '../data/gateway-config.ts';
import { isAbout, parseLogLine, prettyLine } from '../log-view/pretty.ts';

export const command: Command = {
  description: [
    'Shows the latest log lines of a running "townhall start", or of a log in FILE; - reads standard input. With --request',
    'it shows only the lines of one request, by the x-request-id of its answer: status, model, provider, attempts, and the',
    "provider's own error message if the call failed. If a running server has no such line, its usage record is shown",
    'instead. Exits 1 when nothing matches.',
  ],
  actions: [
    action({
      arguments: { file: { placeholder: 'FILE', isOptional: true } },
      options: {
        request: { kind: 'value', placeholder: 'ID', summary: 'Only the lines of this request or trace.' },
        follow: { kind: 'switch', summary: 'Wait for further lines until Ctrl-C.' },
        pretty: { kind: 'switch', summary: 'Print a readable line for each entry, as on a terminal.' },
        json: { kind: 'switch', summary: 'Print JSON even on a terminal.' },
        'database-path': dataOptions['database-path'],
      },
      async run({ options, arguments: { file }, ...context }) {
        // Standard input is read to its end anyway.
        if (options.follow && file !== undefined && file !== '-')
          throw new SettingError(
            `--follow is for the log of a running server; for a file run: tail -F ${file} | townhall logs -`,
          );
        const isPretty = !options.json && (options.pretty || context.output.isTerminal);
        const view = createView({ request: options.request, isPretty }, context);
        const source =
          file === undefined
            ? await openServerLog(options['database-path'], context)
            : readFileLines(file, context);
        for await (const line of source(options.follow)) view.add(line);
        if (view.count() > 0 || options.request === undefined) return 0;
        const limitNote = file === undefined ? '; the server keeps its latest 5,000 lines' : '';
        context.printError(`townhall logs: no line is about ${options.request}${limitNote}.`);
        const record = file === undefined ? await findUsageRecord(options.request, context) : undefined;
        if (record === undefined) return 1;
        context.printError('Its usage record:');
        context.print(isPretty ? recordText(record) : JSON.stringify(record));
        return 0;
      },
    }),
  ],
  notes: [
    'A gateway or agent that runs alone logs to standard output, so pipe its log:',
    '  journalctl -u townhall -o cat | townhall logs - --pretty --request req_01k…',
  ],
};

/** The usage record of the request; undefined when the caller may not see it or the gateway is down. */
async function findUsageRecord(
  requestId: string,
  { env }: CommandContext,
): Promise<Record<string, unknown> | undefined> {
  try {
    const operation = await findGatewayOperation('usage.listRecords');
    const { response } = await callGateway(operation, [`request_id=${requestId}`], {
      url: undefined,
      tokenFile: undefined,
      env,
    });
    if (!response.ok) return undefined;
    const { items } = (await response.json()) as { items: Record<string, unknown>[] };
    return items[0];
  } catch {
    return undefined;
  }
}

const recordMembers = [
  'created_at',
  'action',
  'model',
  'provider',
  'outcome',
  'failure_code',
  'attempts',
  'credits',
  'duration_ms',
];

function recordText(record: Record<string, unknown>): string {
  return recordMembers
    .filter((name) => record[name] !== null)
    .map((name) => `${name}=${escapeControls(String(record[name]))}`)
    .join(' ');
}

type LineSource = (follow: boolean) => AsyncIterable<string>;

function createView(
  { request, isPretty }: { request: string | undefined; isPretty: boolean },
  { print, isFiltered }: CommandContext,
): { add(text: string): void; count(): number } {
  let lines = 0;
  return {
    count: () => lines,
    add(text) {
      const line = parseLogLine(text);
      if (request !== undefined && (line === undefined || !isAbout(line, request))) return;
      // A program may print plain lines between the JSON lines of the log; jq would fail on them.
      if (line === undefined && isFiltered === true) return;
      lines += 1;
      print(isPretty && line !== undefined ? prettyLine(line) : text);
    },
  };
}

function readFileLines(file: string, { isOutputOpen }: CommandContext): LineSource {
  return async function* lines() {
    const input = file === '-' ? createReadStream('', { fd: 0, autoClose: false }) : createReadStream(file);
    for await (const line of createInterface({ input, crlfDelay: Infinity })) {
      if (!isOutputOpen()) return;
      yield line;
    }
  };
}

const followEveryMs = 500;

async function openServerLog(databasePath: string | undefined, context: CommandContext): Promise<LineSource> {
  const config = await readConfigHere({ 'database-path': databasePath }, context);
  const { socket } = gatewayDatabase(config);
  return async function* lines(follow) {
    for (let after = 0; ;) {
      const page = await readServerLines(socket, after);
      for (const line of page.lines) yield line.trimEnd();
      after = page.next;
      if (!follow || !context.isOutputOpen()) return;
      await systemClock.sleep(followEveryMs);
    }
  };
}

async function readServerLines(socket: string, after: number): Promise<{ lines: string[]; next: number }> {
  try {
    return (await callControl(socket, 'logs.read', { after })) as { lines: string[]; next: number };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.code === 'not_ready')
      throw new Error(`No local edition runs with the data at ${socket.replace(/\/[^/]+$/, '')}.`);
    if (error.code === 'route_not_found')
      throw new Error('This server logs to standard output; pipe its log into "townhall logs -".');
    throw error;
  }
}
