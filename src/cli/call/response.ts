// Sends the request of `townhall call` and prints the response by its media type, or writes it into a file.
import { open, rm } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import type { CommandContext } from '../command-line/command.ts';
import { wrapText } from '../command-line/wrap-text.ts';
import { isText } from './operations.ts';
import type { BuiltRequest } from './request.ts';

type Output = CommandContext & {
  isJson: boolean;
  /** The command in error lines; `townhall call` by default. */
  program?: string;
  /** Advice for a refused credential. */
  explainRefusal?: BuiltRequest['explainRefusal'];
};

/** Throws when the server cannot be reached. */
export async function sendRequest(request: Request): Promise<Response> {
  try {
    return await fetch(request);
  } catch (error) {
    const { cause } = error as { cause?: { code?: string; message?: string } };
    const reason = cause?.code ?? cause?.message ?? String(error);
    const { origin } = new URL(request.url);
    throw new Error(`${origin} does not answer (${reason}); start it, or name another server with --url.`, {
      cause: error,
    });
  }
}

/** Returns the exit code: 1 for an error response. */
export async function printResponse(response: Response, output: Output): Promise<number> {
  const { print, isJson } = output;
  if (!response.ok) return printFailure(response, output);
  const type = response.headers.get('content-type')?.split(';', 1)[0]?.trim() ?? '';
  if (!isText(type)) await printBinary(response, type, output);
  else if (!/[/+]json$/.test(type)) await printLines(response, type, output);
  else {
    const text = (await response.text()).trimEnd();
    if (text !== '') print(isJson ? text : JSON.stringify(JSON.parse(text), null, 2));
  }
  return 0;
}

async function printFailure(response: Response, output: Output): Promise<number> {
  const { print, printError, isJson, isFiltered, program = 'townhall call', explainRefusal } = output;
  const text = (await response.text()).trimEnd();
  // A --jq expression is written for the members of a successful answer, so it is not applied to an error.
  if (isJson && isFiltered !== true && text !== '') print(text);
  else {
    const error = readError(text);
    const advice = explainRefusal?.({ status: response.status, code: error?.code ?? '' });
    const lines = [
      `${program}: ${response.status} ${error?.description ?? text.slice(0, 300)}`,
      ...(advice?.split('\n') ?? []),
    ];
    // Wrap between words: a request id that the terminal splits could not be selected with one double-click.
    const width = output.output.columns ?? Infinity;
    for (const line of lines.flatMap((entry) => wrapText(entry, width))) printError(line);
  }
  return 1;
}

/** Undefined for an error that no Townhall server wrote, such as the page of a proxy. */
function readError(text: string): { code: string; description: string } | undefined {
  try {
    const { error } = JSON.parse(text) as {
      error: { code: string; message: string; param: string | null; request_id: string };
    };
    const param = error.param === null ? '' : ` (${error.param})`;
    return {
      code: error.code,
      description: `${error.code}: ${error.message}${param} [${error.request_id}]`,
    };
  } catch {
    return undefined;
  }
}

async function printBinary(
  response: Response,
  type: string,
  { output, isOutputOpen }: Output,
): Promise<void> {
  for await (const chunk of response.body ?? []) {
    if (!isOutputOpen()) break;
    // The command refuses operations with a binary response on a terminal before it calls them, so the
    // contract does not list this media type.
    if (output.isTerminal)
      throw new Error(
        `the answer is ${type || 'of no known type'} and cannot be printed on a terminal; use --output FILE.`,
      );
    await output.write(chunk);
  }
}

/** Prints text line by line as it arrives. With --jq, prints only the data of server-sent events. */
async function printLines(
  response: Response,
  type: string,
  { print, isOutputOpen, isFiltered }: Output,
): Promise<void> {
  const isEventData = isFiltered === true && type === 'text/event-stream';
  const printLine = (line: string): void => {
    const text = isEventData ? /^data: ?([{[].*)/.exec(line)?.[1] : line;
    if (text !== undefined) print(text);
  };
  const decoder = new TextDecoder();
  let partialLine = '';
  for await (const chunk of response.body ?? []) {
    const lines = (partialLine + decoder.decode(chunk, { stream: true })).split('\n');
    partialLine = lines.pop() ?? '';
    for (const line of lines) {
      if (!isOutputOpen()) return;
      printLine(line);
    }
  }
  if (partialLine !== '' && isOutputOpen()) printLine(partialLine);
}

/**
 * Creates the file, readable by its owner only, before the call, since the call may cost credits.
 * The file contains the whole response or is removed. Returns the exit code.
 */
export async function callIntoFile(request: Request, path: string, output: Output): Promise<number> {
  const file = await open(path, 'wx', 0o600);
  let isComplete = false;
  try {
    const response = await sendRequest(request);
    if (!response.ok) return await printFailure(response, output);
    if (response.body !== null) await pipeline(response.body, file.createWriteStream({ autoClose: false }));
    isComplete = true;
    return 0;
  } finally {
    await file.close();
    if (!isComplete) await rm(path, { force: true });
  }
}
