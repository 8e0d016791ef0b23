// What the pages ask of the console, and how a refusal is told to a person: in the agent's words, with the request id to
// quote when asking for help.
import { fill, h } from './elements.ts';
import { keyHeaders } from './key.ts';

/** A call that was refused. `details` name the members at fault, as `payload.times`. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly details: readonly { path: string; message: string }[];

  constructor(
    status: number,
    error: {
      code?: string;
      message?: string;
      request_id?: string;
      details?: { path: string; message: string }[];
    },
  ) {
    super(error.message ?? 'The console gave no reason.');
    this.status = status;
    this.code = error.code ?? 'unknown';
    this.requestId = error.request_id ?? '';
    this.details = error.details ?? [];
  }
}

// The console ends its calls of the agent by deadlines of its own, which are shorter; these end a silence of the console.
const deadlinesMs: Readonly<Record<string, number>> = {
  'console.overview': 10_000,
  'services.controlService': 65_000,
  'services.callCommand': 700_000,
  'services.callAction': 700_000,
  'console.callPlugin': 700_000,
};
const defaultDeadlineMs = 20_000;

/** The answer of an operation of the console's list. Throws a Refusal. */
export async function ask<Answer>(operation: string, members: object = {}): Promise<Answer> {
  const signal = AbortSignal.timeout(deadlinesMs[operation] ?? defaultDeadlineMs);
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
      code: 'console_away',
      message: 'The console does not answer. Does `townhall console` still run?',
    });
  }
  if (!response.ok) throw new Refusal(response.status, body.error ?? {});
  return body as Answer;
}

const notice = document.querySelector<HTMLElement>('#notice');

/** What a person reads of a failure: the message, the members at fault, and the request to quote. */
export function errorView(error: unknown): Node[] {
  const refusal = error instanceof Refusal ? error : undefined;
  const details = refusal?.details ?? [];
  return [
    h('p', {}, error instanceof Error ? error.message : String(error)),
    ...(details.length === 0
      ? []
      : [
          h(
            'ul',
            {},
            details.map(({ path, message }) => h('li', {}, `${path} ${message}`)),
          ),
        ]),
    ...(refusal === undefined || refusal.requestId === ''
      ? []
      : [h('p', { class: 'quiet' }, 'Request ', h('code', {}, refusal.requestId), `, ${refusal.code}`)]),
  ];
}

/** Shows a failure until it is closed or another one is shown. */
export function tell(error: unknown): void {
  if (notice === null) return;
  fill(
    notice,
    errorView(error),
    h(
      'button',
      { type: 'button', class: 'plain', 'aria-label': 'Close this notice', onclick: () => hush() },
      '×',
    ),
  );
  notice.hidden = false;
}

export function hush(): void {
  if (notice !== null) notice.hidden = true;
}

/** Runs something and tells what goes wrong with it; resolves whether it went well. */
export async function trying(work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    hush();
    return true;
  } catch (error) {
    tell(error);
    return false;
  }
}
