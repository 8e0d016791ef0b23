// What a way to log in is to the accounts: a plain value. A provider knows who a person is; attempts, users
// and tokens are not its business.

/** Who a provider says that a person is. (issuer, subject) is the key; the rest is what it knows beside it. */
export interface Person {
  issuer: string;
  subject: string;
  /** Only an address that the provider has verified. */
  email: string | null;
  displayName: string | null;
  avatarUrl?: string | null;
}

/** What a provider may judge an attempt by. */
export interface LoginContext {
  bureauId: string;
  bureauName: string;
  remoteAddress: string;
  host: string;
  origin: string | undefined;
  /** The request says of itself that a proxy passed it on. */
  isForwarded: boolean;
}

export interface LoginInput {
  name: string;
  type: 'text' | 'email' | 'password' | 'code';
  label: string;
  required: boolean;
}

/**
 * What an input led to: somebody is known, a person or a user that there is already, or more is asked.
 * `memory` is what the provider wants to remember until then; it is stored where only the caller can open it.
 */
export type InputStep =
  | { outcome: 'done'; person: Person }
  /** The digest is the one that the password matched; a password that was replaced since then proves nothing. */
  | { outcome: 'done'; userId: string; passwordDigest: string }
  | { outcome: 'input'; inputs: readonly LoginInput[]; memory: string };

interface Provider {
  id: string;
  /** The name for people. */
  label: string;
  /** What it asks for first. */
  inputs: readonly LoginInput[];
  /** Whether it can be used here and now. To a caller for whom it cannot, it does not exist. */
  available(context: LoginContext): boolean;
}

/** Knows at once who it is. */
export interface InstantProvider extends Provider {
  kind: 'instant';
  person: Person;
}

/** Asks the person for something. */
export interface InputProvider extends Provider {
  kind: 'input';
  /** The inputs that are asked for after this memory; without one, those of the start. */
  inputsAfter(memory: string | null): readonly LoginInput[];
  /** Throws 401 `invalid_credentials` for a wrong input, 429 where there were too many. */
  continue(
    input: Readonly<Record<string, string>>,
    memory: string | null,
    context: LoginContext,
  ): Promise<InputStep>;
}

/** Sends the person's browser to a third party. */
export interface RedirectProvider extends Provider {
  kind: 'redirect';
  /** Throws 502 or 504 where the third party cannot be reached. */
  start(request: { callbackUrl: string; state: string }): Promise<{ url: string; memory: string }>;
  /**
   * Who came back with this query. Throws 403 `login_denied` when the person refused, 400 `login_failed` when
   * what came back does not hold, 502 and 504.
   */
  finish(answer: { callbackUrl: string; state: string; query: string; memory: string }): Promise<Person>;
}

export type LoginProvider = InstantProvider | InputProvider | RedirectProvider;
