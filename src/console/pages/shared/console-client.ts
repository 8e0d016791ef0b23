// Calls of the pages to the console, and the display of errors: the agent's message, with the
// request id for support.
import { pageDeadlineMs } from './deadlines.ts';
import { fill, h } from './elements.ts';
import { keyHeaders } from './key.ts';

interface Detail {
  path: string;
  message: string;
}

/** A refused call. `details` name the invalid members, such as `payload.times`. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly details: readonly Detail[];

  constructor(
    status: number,
    error: {
      code?: string;
      message?: string;
      request_id?: string;
      details?: Detail[];
    },
  ) {
    super(error.message ?? 'The console gave no reason.');
    this.status = status;
    this.code = error.code ?? 'unknown';
    this.requestId = error.request_id ?? '';
    this.details = error.details ?? [];
  }
}

/** Calls an operation that the console offers and returns its result. Throws a Refusal. */
export async function callConsole<Answer>(operation: string, members: object = {}): Promise<Answer> {
  const signal = AbortSignal.timeout(pageDeadlineMs(operation));
  let response: Response;
  let body: { error?: object };
  try {
    response = await fetch(`/call/${operation}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json', ...keyHeaders() },
      body: JSON.stringify(members),
      signal,
    });
    body = (await response.json()) as { error?: object };
  } catch {
    throw new Refusal(0, {
      code: 'console_unreachable',
      message: 'The console does not answer. Is `townhall console` still running?',
    });
  }
  if (!response.ok) throw new Refusal(response.status, body.error ?? {});
  return body as Answer;
}

const notice = document.querySelector<HTMLElement>('#notice');

/** An error for the reader: the message, the invalid members, and the request id. */
export function errorView(error: unknown): Node[] {
  const refusal = error instanceof Refusal ? error : undefined;
  const details = refusal?.details ?? [];
  return [
    h('p', {}, error instanceof Error ? error.message : String(error)),
    ...detailList(details),
    ...requestLine(refusal),
  ];
}

let errorCount = 0;

/** Shows an error until it is closed or replaced by another one. */
export function showError(error: unknown): void {
  if (notice === null) return;
  errorCount += 1;
  fill(
    notice,
    errorView(error),
    h(
      'button',
      { type: 'button', class: 'plain', 'aria-label': 'Dismiss this message', onclick: () => hideError() },
      '×',
    ),
  );
  notice.hidden = false;
}

export function hideError(): void {
  if (notice !== null) notice.hidden = true;
}

/**
 * Runs the work and shows its error. A success hides an error that was shown before the work, but not the
 * error of other work that ran at the same time. Resolves to whether the work succeeded.
 */
export async function runOrShowError(work: () => Promise<unknown>): Promise<boolean> {
  const countBefore = errorCount;
  try {
    await work();
    if (errorCount === countBefore) hideError();
    return true;
  } catch (error) {
    showError(error);
    return false;
  }
}

/** Shows a refusal, with the errors that no field of the form shows. */
export function refusalView(refusal: Refusal, unplacedErrors: readonly Detail[] = refusal.details): Node[] {
  return [h('p', { class: 'bad' }, refusal.message), ...detailList(unplacedErrors), ...requestLine(refusal)];
}

/** Empty if no server answered. */
function requestLine(refusal: Refusal | undefined): Node[] {
  if (refusal === undefined || refusal.requestId === '') return [];
  return [h('p', { class: 'quiet' }, 'Request ', h('code', {}, refusal.requestId), `, ${refusal.code}`)];
}

function detailList(details: readonly Detail[]): Node[] {
  if (details.length === 0) return [];
  return [
    h(
      'ul',
      {},
      details.map(({ path, message }) => h('li', {}, `${path} ${message}`)),
    ),
  ];
}
