// What a child process of this installation starts with: its command, and the operator's environment
// variables that a deployed gateway gets. These are its own settings, the keys that providers and
// services declare, and basic ones such as PATH. All other variables of the operator's shell are left
// out, since they may be secrets that the gateway does not need.
import { isSingleExecutable } from '../../kernel/assets.ts';
import { isStartupKey } from '../../gateway/config.ts';
import type { Runner } from '../../deploy/index.ts';

const systemKeys = new Set([
  'PATH',
  'HOME',
  'USER',
  'LOGNAME',
  'LANG',
  'TZ',
  'TMPDIR',
  'SSL_CERT_FILE',
  'SSL_CERT_DIR',
  'UV_THREADPOOL_SIZE',
]);
const featureKeys = new Set(['SMTP_URL', 'MAIL_FROM', 'CREDITS_PER_UNIT']);
// Name patterns of the keys of model providers, payment providers and logins.
const providerKeyShape =
  /_(?:API_KEY|BASE_URL|SECRET_KEY|WEBHOOK_SECRET|WEBHOOK_SECRET_PREVIOUS|CLIENT_ID|CLIENT_SECRET|ISSUER|PRODUCT_ID|CURRENCY)$/;

/** Whether a deployed gateway gets the variable from the operator's environment. */
export function isForwarded(key: string): boolean {
  return (
    systemKeys.has(key) ||
    key.startsWith('LC_') ||
    key.startsWith('OTEL_') ||
    featureKeys.has(key) ||
    providerKeyShape.test(key) ||
    isStartupKey(key) ||
    key.startsWith('TOWNHALL_') ||
    key === 'no_proxy' ||
    key.endsWith('_proxy')
  );
}

/** The command that starts another process of this installation. */
export function ownRunner(): Runner {
  const [, program] = process.argv;
  return {
    command: process.execPath,
    arguments: isSingleExecutable || program === undefined ? [] : [program],
  };
}
