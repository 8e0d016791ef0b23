// Commands named after what they list, such as `townhall users list`: a thin layer over `townhall
// call` with a table for a person. Members of the operation are typed as NAME=VALUE, as with
// `townhall call`.
import { styleText } from 'node:util';
import { isRecord, type JsonRecord } from '../../kernel/json-value.ts';
import { alignColumns } from '../command-line/columns.ts';
import { action, type Action, type CommandContext } from '../command-line/command.ts';
import { readOperations } from './operations.ts';
import { buildRequest, localServers, type RequestOptions } from './request.ts';
import { printResponse, sendRequest } from './response.ts';

export interface ResourceAction {
  path: string;
  summary: string;
  operationId: string;
  /** The member that the first word sets without its name, such as `user_id`. */
  subject?: string;
  /** Members of the items of a list, in the order of the table; without it the answer is printed as it is. */
  columns?: readonly string[];
}

export function resourceAction({ path, summary, operationId, subject, columns }: ResourceAction): Action {
  return action({
    path,
    summary,
    arguments: {
      ...(subject === undefined ? {} : { subject: { placeholder: subject.toUpperCase() } }),
      pairs: { placeholder: 'NAME=VALUE', isRest: true },
    },
    options: resourceOptions,
    async run({ arguments: words, options, ...context }) {
      const { subject: value, pairs } = words as { subject?: string; pairs: readonly string[] };
      const members =
        subject === undefined || value === undefined ? pairs : [`${subject}=${value}`, ...pairs];
      const response = await callGateway(operationId, members, {
        url: options.url,
        tokenFile: options['token-file'],
        env: context.env,
      });
      if (!response.ok || options.json || columns === undefined)
        return printResponse(response, { ...context, isJson: options.json, program: 'townhall' });
      printTable((await response.json()) as unknown, columns, context);
      return 0;
    },
  });
}

/** The answer of an operation of the gateway. Throws when the gateway cannot be reached. */
export async function callGateway(
  operationId: string,
  members: readonly string[],
  options: Pick<RequestOptions, 'url' | 'tokenFile' | 'env'>,
): Promise<Response> {
  const operation = (await readOperations('gateway')).find(
    (candidate) => candidate.operationId === operationId,
  );
  if (operation === undefined) throw new Error(`The contract has no operation ${operationId}.`);
  const request = await buildRequest(operation, members, { ...options, surface: 'gateway', body: undefined });
  return sendRequest(request);
}

const resourceOptions = {
  url: {
    kind: 'value',
    placeholder: 'URL',
    summary: `The gateway; else TOWNHALL_URL in the environment (${localServers.gateway.url}).`,
  },
  'token-file': {
    kind: 'value',
    placeholder: 'FILE',
    summary: 'The credential, in place of the environment.',
  },
  json: { kind: 'switch', summary: 'Print the answer or the error as one line of JSON.' },
} as const;

/** Lines for the help of these commands. */
export const resourceNotes: readonly string[] = [
  'The credential is TOWNHALL_ADMIN_TOKEN for operations of administrators and TOWNHALL_TOKEN for all; without them,',
  'the token of a local edition that was started in this folder. "townhall call gateway OPERATION --describe" lists the',
  'members of an operation.',
];

function printTable(
  answer: unknown,
  columns: readonly string[],
  { print, printError, output }: CommandContext,
): void {
  const { items, next_cursor: next } = isRecord(answer) ? answer : {};
  const records = Array.isArray(items) ? items.filter(isRecord) : [];
  if (records.length === 0) printError('Nothing is listed.');
  for (const line of tableLines(records, columns, output.columns)) print(line);
  if (typeof next === 'string') printError(`There is more: cursor=${next}`);
}

/** The lines of a table with a head, cut at the width of the terminal. */
export function tableLines(
  records: readonly JsonRecord[],
  columns: readonly string[],
  width: number | undefined,
): string[] {
  if (records.length === 0) return [];
  const rows = records.map((record) => columns.map((name) => cell(record[name])));
  const [head = '', ...lines] = alignColumns([columns.map(titleOf), ...rows]).map((line) =>
    cutLine(line, width),
  );
  return [styleText('bold', head), ...lines];
}

function titleOf(column: string): string {
  return column.toUpperCase().replaceAll('_', ' ');
}

// A newline would break the table, and a terminal obeys control characters.
function cell(value: unknown): string {
  if (value === null || value === undefined) return '-';
  if (typeof value === 'number') return value.toLocaleString('en');
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return cell(value.join(', '));
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  const day = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+Z$/.exec(text);
  return day?.[1] === undefined ? text.replaceAll(/[\p{Cc}\p{Cf}]/gu, '\uFFFD') : `${day[1]}Z`;
}

function cutLine(line: string, width: number | undefined): string {
  return width === undefined || line.length <= width ? line : `${line.slice(0, Math.max(1, width - 1))}…`;
}
