// The interface of a login provider. A provider only identifies a person; its callers create login
// attempts, users and tokens.

/**
 * The identity that a provider reports. (issuer, subject) is the key of the account; the rest is its profile.
 */
export interface Person {
  issuer: string;
  subject: string;
  /** An address that the provider has verified; null when there is none. */
  email: string | null;
  displayName: string | null;
  avatarUrl?: string | null;
}

/** The facts of a request that decide whether a provider is available. */
export interface LoginContext {
  bureauId: string;
  bureauName: string;
  remoteAddress: string;
  host: string;
  origin: string | undefined;
  /** The request has a header that proxies add. */
  isForwarded: boolean;
}

export interface LoginInput {
  name: string;
  type: 'text' | 'email' | 'password' | 'code';
  label: string;
  required: boolean;
}

/**
 * The result of an input: a person, an existing user, or a request for more input. The caller stores
 * `state`, encrypted with a key derived from the `login_id`, and returns it with the next input.
 */
export type InputStep =
  | { outcome: 'done'; person: Person }
  /** The password matched `passwordDigest`. If the password changes meanwhile, the login fails. */
  | { outcome: 'done'; userId: string; passwordDigest: string }
  | { outcome: 'input'; inputs: readonly LoginInput[]; state: string };

interface Provider {
  id: string;
  /** The name that login pages show. */
  label: string;
  /** The first inputs. */
  inputs: readonly LoginInput[];
  /** Whether this caller can use the provider now. Other callers get the answers for an unknown provider. */
  available(context: LoginContext): boolean;
}

/** Identifies the person without any input. */
export interface InstantProvider extends Provider {
  kind: 'instant';
  person: Person;
}

/** Asks the person for inputs. */
export interface InputProvider extends Provider {
  kind: 'input';
  /** The inputs that are expected next: the first inputs when `state` is null. */
  inputsAfter(state: string | null): readonly LoginInput[];
  /** Throws 401 `invalid_credentials` for a wrong input, 429 after too many attempts. */
  continue(
    input: Readonly<Record<string, string>>,
    state: string | null,
    context: LoginContext,
  ): Promise<InputStep>;
}

/** Sends the person's browser to a third party. */
export interface RedirectProvider extends Provider {
  kind: 'redirect';
  /**
   * `memory` is the provider's own state until the browser returns. Throws 502 or
   * 504 when the third party fails.
   */
  start(request: { callbackUrl: string; state: string }): Promise<{ url: string; memory: string }>;
  /**
   * Exchanges the callback's query for a person. Throws 403 `login_denied` when the person refused,
   * 400 `login_failed` when the query or the third party's answer is invalid, 502 and 504.
   */
  finish(answer: { callbackUrl: string; state: string; query: string; memory: string }): Promise<Person>;
}

export type LoginProvider = InstantProvider | InputProvider | RedirectProvider;
