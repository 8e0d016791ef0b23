// What a way to log in is to the accounts: a plain value. A provider knows who a person is; attempts, users
// and tokens are not its business.

/** Who a provider says that a person is. (issuer, subject) is the key; the rest is what it knows beside it. */
export interface Person {
  issuer: string;
  subject: string;
  email: string | null;
  displayName: string | null;
}

/** What a provider may judge an attempt by. */
export interface LoginContext {
  bureauId: string;
  remoteAddress: string;
  host: string;
  origin: string | undefined;
}

export interface LoginInput {
  name: string;
  type: 'text' | 'email' | 'password' | 'code';
  label: string;
  required: boolean;
}

/** What starting an attempt led to. */
export type LoginStep = { outcome: 'done'; person: Person };

export interface LoginProvider {
  id: string;
  /** The name for people. */
  label: string;
  kind: 'instant' | 'input' | 'redirect';
  inputs: readonly LoginInput[];
  /** Whether it can be used here and now. To a caller for whom it cannot, it does not exist. */
  available(context: LoginContext): boolean;
  start(context: LoginContext): Promise<LoginStep>;
}
