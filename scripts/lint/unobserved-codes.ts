// The listed error codes that no test observes in an answer of a server in its own process, each with the
// reason. A reason that begins with "Raced" is for a code that depends on timing, so a run may observe it.

const page = 'The answer is a page; test/gateway/accounts reads its text and the address of its redirect.';
const raceReason = 'Only when an administrator blocks the user between two requests of one login.';
const callback =
  'Also listed for the login provider, whose failures come at the callback, which answers with a page.';
const mailDeadline =
  'The mail server would have to be silent until its deadline; test/gateway/accounts observes its failure.';
const unmailedReason = 'Only when an operator removes the mail server between the mail and its code.';
const ledger = 'Raced below HTTP: test/gateway/credits calls the ledger itself.';

export const unobservedCodes: Readonly<Record<string, string>> = {
  'accounts.startLogin login_failed': callback,
  'accounts.startLogin user_blocked': raceReason,
  'accounts.continueLogin conflict':
    'Only when a person sends an input for a login that waits for the browser.',
  'accounts.continueLogin upstream_failed': mailDeadline,
  'accounts.continueLogin upstream_timeout': mailDeadline,
  'accounts.getLoginResult user_blocked': raceReason,
  'accounts.receiveOauthCallback login_failed': page,
  'accounts.receiveOauthCallback user_blocked': page,
  'accounts.receiveOauthCallback login_denied': page,
  'accounts.receiveOauthCallback upstream_failed': page,
  'accounts.receiveOauthCallback upstream_timeout': page,
  'accounts.decideLogin user_blocked': page,
  'accounts.register upstream_timeout': mailDeadline,
  'accounts.verifyEmail user_blocked': raceReason,
  'accounts.verifyEmail provider_not_found': unmailedReason,
  'accounts.verifyEmail bureau_not_found': 'The Bureau of a verification exists; Bureaus are not removed.',
  'accounts.resetPassword user_blocked': raceReason,
  'accounts.resetPassword provider_not_found': unmailedReason,
  'accounts.resetPassword bureau_not_found': 'The Bureau of a verification exists; Bureaus are not removed.',
  'credits.deductCredits credits_busy': ledger,
  'payments.createCheckout upstream_timeout':
    'The payment provider would have to be silent until its deadline; its failure is observed.',
  'gateway, a paid call of a model: credits_busy': ledger,
  'gateway, a paid call of a model: journal_unavailable':
    'Needs a full disk below the journal; test/gateway/credits/journal-failure.test.ts calls the ledger.',
  'agent, every operation: internal_error':
    'A fault of the agent itself; test/agent/sessions/run-failure.test.ts has the mapping.',
  'agent, every operation: database_unavailable':
    'The agent with a lost database runs as a process of its own, in test/fault-injection.',
  'agent, an instruction: conflict':
    'Raced: needs many requests that create one session in the same millisecond.',
  'sessions.follow rate_limited': 'Needs more streams than the agent allows for one token, 1,000.',
};
