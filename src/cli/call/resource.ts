// Commands named after what they list, such as `townhall users list`: a thin layer over `townhall
// call` that prints lists as tables. Members of the operation are typed as NAME=VALUE, as with
// `townhall call`.
import { systemClock } from '../../kernel/clock.ts';
import { isRecord } from '../../kernel/json-value.ts';
import { SettingError } from '../../kernel/settings.ts';
import {
  action,
  type Action,
  type Argument,
  type CommandContext,
  type CompletionWord,
} from '../command-line/command.ts';
import { escapeControls } from '../command-line/escape-controls.ts';
import { defaultUrls } from './local-edition.ts';
import { readOperations, type CallableOperation } from './operations.ts';
import { buildRequest, type BuiltRequest, type RequestOptions } from './request.ts';
import { printResponse, sendRequest } from './response.ts';
import { renderTable } from './table.ts';

export interface ResourceAction {
  path: string;
  summary: string;
  operationId: string;
  /** The member that the first word sets without its name, such as `user_id`. */
  subject?: string;
  /** The list operation whose items complete the first word in a shell. */
  completion?: SubjectCompletion;
  /**
   * The members of a list's items to show as columns, the most important first. Without columns the
   * answer is printed as `townhall call` prints it.
   */
  columns?: readonly string[];
}

export interface SubjectCompletion {
  operationId: string;
  /** The member of an item that the shell completes. */
  id: string;
  /** The members that can describe the item; the first that is set is shown. */
  labels: readonly string[];
}

export function resourceAction({
  path,
  summary,
  operationId,
  subject,
  completion,
  columns,
}: ResourceAction): Action {
  return action({
    path,
    summary,
    arguments: {
      ...(subject === undefined ? {} : { subject: subjectArgument(subject, completion) }),
      pairs: { placeholder: 'NAME=VALUE', isRest: true },
    },
    options: resourceOptions,
    async run({ arguments: words, options, ...context }) {
      const { subject: value, pairs } = words as { subject?: string; pairs: readonly string[] };
      const operation = await findGatewayOperation(operationId);
      const members = value === undefined ? pairs : [subjectPair(operation, subject ?? '', value), ...pairs];
      const { response, explainRefusal } = await callGateway(operation, members, {
        url: options.url,
        tokenFile: options['token-file'],
        env: context.env,
      });
      if (!response.ok || options.json || columns === undefined) {
        const output = { ...context, isJson: options.json, program: 'townhall', explainRefusal };
        return printResponse(response, output);
      }
      printTable((await response.json()) as unknown, columns, context);
      return 0;
    },
  });
}

function subjectArgument(subject: string, completion: SubjectCompletion | undefined): Argument {
  const placeholder = subject.toUpperCase();
  return completion === undefined
    ? { placeholder }
    : { placeholder, readWords: (env) => readSubjects(completion, env) };
}

// The shell blocks after each Tab until the words arrive.
const completionMs = 2_000;

/** Throws when the server does not answer in time, or refuses the call. */
async function readSubjects(
  { operationId, id, labels }: SubjectCompletion,
  env: CommandContext['env'],
): Promise<CompletionWord[]> {
  const operation = await findGatewayOperation(operationId);
  const members = operation.members.some(({ name }) => name === 'limit') ? ['limit=100'] : [];
  const { request } = await buildRequest(operation, members, {
    surface: 'gateway',
    body: undefined,
    url: undefined,
    tokenFile: undefined,
    env,
  });
  const response = await fetch(request, { signal: AbortSignal.timeout(completionMs) });
  const { items } = (await response.json()) as { items: Record<string, unknown>[] };
  return items.map((item) => {
    const label = labels.map((name) => item[name]).find((value) => typeof value === 'string' && value !== '');
    return { word: String(item[id]), description: escapeControls(typeof label === 'string' ? label : '') };
  });
}

/** Turns the first word into NAME=VALUE, unless it already is one. Throws when it sets another member. */
function subjectPair({ members }: CallableOperation, subject: string, word: string): string {
  const [, name] = /^(\w+)=/.exec(word) ?? [];
  if (name === subject) return word;
  if (name !== undefined && members.some((member) => member.name === name))
    throw new SettingError(
      `the first word is the ${subject}, and "${word}" sets ${name}; write ${subject.toUpperCase()} before it.`,
    );
  return `${subject}=${word}`;
}

/** Throws for an operation that the contract lacks. */
export async function findGatewayOperation(operationId: string): Promise<CallableOperation> {
  const operations = await readOperations('gateway');
  const operation = operations.find((candidate) => candidate.operationId === operationId);
  if (operation === undefined) throw new Error(`The contract has no operation ${operationId}.`);
  return operation;
}

/** Calls an operation of the gateway. Throws when the gateway cannot be reached. */
export async function callGateway(
  operation: CallableOperation,
  members: readonly string[],
  options: Pick<RequestOptions, 'url' | 'tokenFile' | 'env'>,
): Promise<{ response: Response; explainRefusal: BuiltRequest['explainRefusal'] }> {
  const { request, explainRefusal } = await buildRequest(operation, members, {
    ...options,
    surface: 'gateway',
    body: undefined,
  });
  return { response: await sendRequest(request), explainRefusal };
}

const resourceOptions = {
  url: {
    kind: 'value',
    placeholder: 'URL',
    summary: `The gateway; else TOWNHALL_URL in the environment (${defaultUrls.gateway}).`,
  },
  'token-file': {
    kind: 'value',
    placeholder: 'FILE',
    summary: 'File with the credential to use instead of the environment.',
  },
  json: { kind: 'switch', summary: 'Print the answer or the error as one line of JSON.' },
} as const;

/** Notes that the help of each of these commands ends with. */
export const resourceNotes: readonly string[] = [
  'The credential comes from "townhall login", or "townhall login --admin" for operations of administrators, else from',
  'TOWNHALL_TOKEN or TOWNHALL_ADMIN_TOKEN, else from a local edition that runs in this folder.',
  '"townhall call gateway OPERATION --describe" lists the members of an operation.',
];

function printTable(
  answer: unknown,
  columns: readonly string[],
  { print, printError, output }: CommandContext,
): void {
  const { items, next_cursor: next } = isRecord(answer) ? answer : {};
  const records = Array.isArray(items) ? items.filter(isRecord) : [];
  if (records.length === 0) printError('Nothing is listed.');
  const table = renderTable(records, columns, { width: output.columns, now: systemClock.now() });
  for (const line of table.lines) print(line);
  if (table.hiddenTitles.length > 0)
    printError(`A wider terminal or --json also shows: ${table.hiddenTitles.join(', ')}.`);
  if (typeof next === 'string') printError(`There is more: cursor=${next}`);
}
