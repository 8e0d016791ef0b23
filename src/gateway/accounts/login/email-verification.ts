// Verifies an e-mail address with a code, for registrations and password resets. The API's answer and its
// timing are the same whether or not the address has an account: only the owner of the address learns
// that, by e-mail.
import { Problem } from '../../../kernel/problem.ts';
import type { Bureau } from '../../bureaus/index.ts';
import type { AttemptLimits } from '../core/attempt-limits.ts';
import type { RequireActiveBureau } from '../core/ports.ts';
import { matchesCode, sendCode, type Mailer } from '../providers/code-mail.ts';
import { normalizeAddress } from '../providers/email-address.ts';
import { wrongInput } from '../providers/password-login.ts';
import type { OneTimeTokenStore } from './one-time-tokens-store.ts';
import { consumeOneTimeToken, issueOneTimeToken, useOneTimeTokenAttempt } from './one-time-tokens.ts';

export interface PendingVerification {
  bureauId: string;
  email: string;
  /**
   * Null when no code was sent: the address of a registration already has an account, or the address of a
   * password reset has none. Null matches no input.
   */
  code: string | null;
}

type VerificationPurpose = 'registration' | 'password_reset';

export interface EmailVerification {
  /**
   * Throws 404 when e-mail is not configured, 400 for a malformed address, and the Problems of
   * `requireActiveBureau`.
   */
  requireAddress(body: { bureau_id: string; email: string }): Promise<{ bureau: Bureau; email: string }>;
  /** Counts one sent code, even if none is sent: a 429 must not reveal whether an account exists. */
  countCode(bureau: Bureau, email: string, remoteAddress: string): Promise<void>;
  /** Stores the content until the code is entered, and returns the answer with its ID. */
  start(
    purpose: VerificationPurpose,
    content: PendingVerification,
  ): Promise<{
    status: 202;
    headers: Record<string, string>;
    body: { verification_id: string; expires_at: string };
  }>;
  sendCode(bureau: Bureau, mail: { to: string; code: string; purpose: string }): Promise<void>;
  /**
   * Checks the code, deletes the verification and returns its content. Throws 401 for a wrong code, and
   * 429 after too many wrong codes. `validate` is called with the content once the code is right; an error
   * that it throws keeps the verification for another attempt.
   */
  prove<T extends PendingVerification>(
    purpose: VerificationPurpose,
    body: { verification_id: string; code: string },
    remoteAddress: string,
    validate?: (content: T) => void,
  ): Promise<T>;
}

// Wrong codes per verification.
const maxAttempts = 5;

export function createEmailVerification({
  oneTimeTokens,
  attemptLimits,
  mail,
  requireActiveBureau,
  ttlSeconds,
}: {
  oneTimeTokens: OneTimeTokenStore;
  attemptLimits: Pick<AttemptLimits, 'count' | 'recordSuccess'>;
  mail: Mailer;
  requireActiveBureau: RequireActiveBureau;
  ttlSeconds: number;
}): EmailVerification {
  const minutes = Math.ceil(ttlSeconds / 60);
  return {
    async requireAddress({ bureau_id: bureauId, email: input }) {
      const bureau = await requireActiveBureau(bureauId);
      if (!mail.isConfigured())
        throw new Problem('not_found', 'provider_not_found', 'This server has no e-mail accounts.');
      const email = normalizeAddress(input);
      if (email === null)
        throw new Problem('bad_request', 'invalid_request', '`email` is not an e-mail address.', {
          param: 'email',
        });
      return { bureau, email };
    },
    countCode: ({ bureauId }, email, remoteAddress) =>
      attemptLimits.count('sentCodes', { bureauId, email, remoteAddress }),
    async start(purpose, content) {
      const token = await issueOneTimeToken(oneTimeTokens, { purpose, content, ttlSeconds, maxAttempts });
      return {
        status: 202,
        headers: { 'cache-control': 'no-store' },
        body: { verification_id: token.secret, expires_at: token.expiresAt.toISOString() },
      };
    },
    sendCode: ({ name }, message) => sendCode(mail, { ...message, bureauName: name, minutes }),
    async prove<T extends PendingVerification>(
      purpose: VerificationPurpose,
      { verification_id: secret, code: input }: { verification_id: string; code: string },
      remoteAddress: string,
      validate: (content: T) => void = () => {},
    ) {
      const token = await useOneTimeTokenAttempt<T>(oneTimeTokens, purpose, secret);
      if (!token) throw wrongCode();
      const { bureauId, email, code } = token.content;
      const source = { bureauId, email, remoteAddress };
      await attemptLimits.count('wrongCodes', source);
      if (!matchesCode(input, code)) throw wrongCode();
      await attemptLimits.recordSuccess('wrongCodes', source);
      validate(token.content);
      // Only one of several concurrent requests with the right code continues.
      if (!(await consumeOneTimeToken(oneTimeTokens, purpose, secret))) throw wrongCode();
      await requireActiveBureau(bureauId);
      return token.content;
    },
  };
}

function wrongCode(): Problem {
  return wrongInput('The code is wrong or has expired.');
}
