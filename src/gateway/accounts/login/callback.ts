// The end of a redirect login, in the person's browser. The rule it keeps: whoever starts an attempt and has
// somebody else finish it gets nothing. With a `redirect_to` the token needs a code that only the finishing browser
// brings to the product; without one the person compares a code first.
import { asProblem, Problem } from '../../../kernel/problem.ts';
import type { Bureau, BureauState } from '../../bureaus/index.ts';
import type { Person, RedirectProvider } from '../providers/provider.ts';
import { isSecret, newSecret, secretDigest } from '../secret-box.ts';
import type { TicketStore } from '../one-time-tokens-store.ts';
import { issueTicket, takeTicket } from '../one-time-tokens.ts';
import type { Attempts, RedirectMemory } from './attempts.ts';
import { pageHeaders, renderPage, type Page, type PageReply } from './pages.ts';
import { returnAddress } from './redirect-target.ts';
import type { Attempt, AttemptStore } from './store.ts';

export interface CallbackNeeds {
  attempts: Attempts;
  attemptStore: AttemptStore;
  tickets: TicketStore;
  findBureau: (bureauId: string) => Promise<Bureau | null>;
  refuseUnlessActive: (state: BureauState) => void;
  /** The provider as it is here and now; undefined when it was taken away meanwhile. */
  redirectProvider: (providerId: string) => RedirectProvider | undefined;
  confirmSeconds: number;
}

type PageStatus = 200 | 400 | 403 | 502 | 503 | 504;
type Paged<Status extends PageStatus> = Status extends PageStatus ? { status: Status } & PageReply : never;
type CallbackReply = Paged<PageStatus> | { status: 303; headers: Record<string, string> };
// No third party has a part in a decision.
type DecisionReply = Paged<Exclude<PageStatus, 502 | 504>>;

type Log = { warn(fields: object, message: string): void };

interface Confirmation {
  bureauId: string;
  person: Person;
}

export interface LoginCallback {
  /** The browser is back; `query` is what stood after the question mark. */
  receive(query: { state?: string }, search: string, log: Log): Promise<CallbackReply>;
  /** The person has compared the codes. */
  decide(form: Uint8Array): Promise<DecisionReply>;
}

export function createCallback(needs: CallbackNeeds): LoginCallback {
  const { attempts, attemptStore, tickets } = needs;

  async function finishWithRedirect(
    digest: Buffer,
    attempt: Attempt,
    redirectTo: string,
    person: Person,
  ): Promise<CallbackReply> {
    const loginCode = newSecret('code');
    await attempts.finish(digest, attempt.bureauId, person, secretDigest(loginCode));
    return sendBack(redirectTo, 'login_code', loginCode);
  }

  async function askToCompare(
    digest: Buffer,
    attempt: Attempt,
    userCode: string,
    person: Person,
  ): Promise<CallbackReply> {
    const bureau = await needs.findBureau(attempt.bureauId);
    const content: Confirmation = { bureauId: attempt.bureauId, person };
    const { secret } = await issueTicket(tickets, {
      purpose: 'confirmation',
      content,
      attemptDigest: digest,
      ttlSeconds: needs.confirmSeconds,
    });
    return paged(200, {
      title: `Log in to ${bureau?.name ?? attempt.bureauId}?`,
      paragraphs: [
        'Somebody is waiting to be logged in. Say yes only if this code stands on your own device, where you began. If anyone sent you here, say no.',
      ],
      form: { confirmation: secret, userCode },
    });
  }

  async function complete(
    search: string,
    state: string,
    ticket: { attemptDigest: Buffer | null; content: RedirectMemory },
    log: Log,
  ): Promise<CallbackReply> {
    const { attemptDigest: digest, content } = ticket;
    const attempt = digest && (await attemptStore.find(digest));
    if (!digest || !attempt || attempt.state !== 'pending' || attempt.isExpired) return unknownState();
    try {
      needs.refuseUnlessActive(attempt.bureauState);
      const provider = needs.redirectProvider(content.providerId);
      if (!provider)
        throw new Problem('bad_request', 'login_failed', 'This way to log in is not there any more.');
      const person = await provider.finish({
        callbackUrl: content.callbackUrl,
        state,
        query: search,
        memory: content.memory,
      });
      if (attempt.redirectTo !== null)
        return await finishWithRedirect(digest, attempt, attempt.redirectTo, person);
      return await askToCompare(digest, attempt, content.userCode ?? '', person);
    } catch (error) {
      const problem = asProblem(error);
      // What is ours may pass: the state is spent, but the attempt is not to blame.
      log.warn(
        { code: problem.code, provider: content.providerId, reason: reasonOf(problem) },
        'a redirect login failed',
      );
      if (problem.kind === 'internal' || problem.kind === 'unavailable') throw problem;
      await attemptStore.fail(digest, errorOf(problem));
      return attempt.redirectTo === null
        ? pageOf(problem)
        : sendBack(attempt.redirectTo, 'login_error', errorOf(problem));
    }
  }

  return {
    async receive({ state }, search, log) {
      try {
        const ticket =
          state !== undefined && isSecret('state', state)
            ? await takeTicket<RedirectMemory>(tickets, 'oauth_state', state)
            : null;
        return state === undefined || ticket === null
          ? unknownState()
          : await complete(search, state, ticket, log);
      } catch (error) {
        return pageOf(asProblem(error));
      }
    },
    async decide(form) {
      try {
        const fields = new URLSearchParams(Buffer.from(form).toString('utf8'));
        const confirmation = fields.get('confirmation') ?? '';
        const decision = fields.get('decision');
        if (decision !== 'confirm' && decision !== 'cancel') return unknownState();
        const ticket = isSecret('confirmation', confirmation)
          ? await takeTicket<Confirmation>(tickets, 'confirmation', confirmation)
          : null;
        if (!ticket?.attemptDigest) return unknownState();
        const { attemptDigest: digest, content } = ticket;
        if (decision === 'cancel') {
          await attemptStore.fail(digest, 'login_denied');
          return paged(200, {
            title: 'The login was refused',
            paragraphs: ['Nobody was logged in. You can close this page.'],
          });
        }
        const attempt = await attemptStore.find(digest);
        if (attempt) needs.refuseUnlessActive(attempt.bureauState);
        await attempts.finish(digest, content.bureauId, content.person);
        return paged(200, {
          title: 'You are logged in',
          paragraphs: ['Go back to where you began. You can close this page.'],
        });
      } catch (error) {
        return pageOf(asProblem(error)) as DecisionReply;
      }
    },
  };
}

function sendBack(redirectTo: string, member: 'login_code' | 'login_error', value: string): CallbackReply {
  return { status: 303, headers: { ...pageHeaders, location: returnAddress(redirectTo, member, value) } };
}

function paged<const Status extends PageStatus>(status: Status, page: Page): Paged<Status> {
  return { status, ...renderPage(page) } as Paged<Status>;
}

function unknownState(): Paged<400> {
  return paged(400, {
    title: 'This login cannot go on',
    paragraphs: [
      'It is too old, or this page was opened a second time. Begin again where you wanted to log in.',
    ],
  });
}

function errorOf({ code }: Problem): string {
  return ['login_denied', 'user_blocked', 'upstream_failed', 'upstream_timeout'].includes(code)
    ? code
    : 'login_failed';
}

// The class and code of what the library threw; its message may quote what came back.
function reasonOf({ cause }: Problem): string | undefined {
  if (!(cause instanceof Error)) return undefined;
  const { code } = cause as { code?: unknown };
  return typeof code === 'string' ? `${cause.name} ${code}` : cause.name;
}

/** An internal fault is thrown on: it is logged, and the answer says nothing. */
function pageOf(problem: Problem): Paged<PageStatus> {
  const again = 'Begin again where you wanted to log in.';
  if (problem.kind === 'internal') throw problem;
  if (problem.kind === 'unavailable')
    return paged(503, {
      title: 'Not now',
      paragraphs: [`The server cannot look after you at the moment. ${again}`],
    });
  if (problem.kind === 'upstream_timeout')
    return paged(504, { title: 'The provider was too slow', paragraphs: [again] });
  if (problem.kind === 'upstream_failed')
    return paged(502, { title: 'The provider failed', paragraphs: [again] });
  if (problem.kind === 'forbidden')
    return paged(403, { title: 'The login was refused', paragraphs: [problem.message] });
  if (problem.kind === 'gone') return unknownState();
  return paged(400, {
    title: 'This login cannot go on',
    paragraphs: [`What came back from the provider does not hold. ${again}`],
  });
}
