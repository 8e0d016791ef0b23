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

  constructor(status: number, error: { code?: string; message?: string; request_id?: string; details?: { path: string; message: string }[] }) {
    super(error.message ?? 'The console gave no reason.');
    this.status = status;
    this.code = error.code ?? 'unknown';
    this.requestId = error.request_id ?? '';
    this.details = error.details ?? [];
  }
}

/** The answer of an operation of the console's list. Throws a Refusal. */
export async function ask<Answer>(operation: string, members: object = {}): Promise<Answer> {
  let response: Response;
  try {
    response = await fetch(`/call/${operation}`, { method: 'POST', headers: { 'content-type': 'application/json', accept: 'application/json', ...keyHeaders() }, body: JSON.stringify(members) });
  } catch {
    throw new Refusal(0, { code: 'console_away', message: 'The console does not answer. Does `townhall console` still run?' });
  }
  const body = (await response.json().catch(() => ({}))) as { error?: object };
  if (!response.ok) throw new Refusal(response.status, body.error ?? {});
  return body as Answer;
}

const notice = document.querySelector<HTMLElement>('#notice');

/** Says that something did not work, until it is closed or something else is said. */
export function tell(error: unknown): void {
  if (notice === null) return;
  const refusal = error instanceof Refusal ? error : undefined;
  const details = refusal?.details.map(({ path, message }) => h('li', {}, `${path} ${message}`)) ?? [];
  fill(
    notice,
    h('p', {}, error instanceof Error ? error.message : String(error)),
    details.length > 0 && h('ul', {}, details),
    refusal !== undefined && refusal.requestId !== '' && h('p', { class: 'quiet' }, 'Request ', h('code', {}, refusal.requestId), ', ', refusal.code),
    h('button', { type: 'button', class: 'plain', 'aria-label': 'Close this notice', onclick: () => hush() }, '×'),
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
