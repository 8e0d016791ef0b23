// What of the operator's environment a deployed gateway gets: its own settings, the keys that providers and services
// declare, and what any program needs. Nothing else of a shell goes into a process that stays.
import { isSingleExecutable } from '../../kernel/assets.ts';
import { isStartupKey } from '../../gateway/config.ts';
import type { Runner } from '../../deploy/index.ts';

const ofPrograms = new Set([
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
const declared = new Set(['SMTP_URL', 'MAIL_FROM', 'CREDITS_PER_UNIT']);
// As the model providers, the payment providers and the logins name theirs.
const declaredShape =
  /_(?:API_KEY|BASE_URL|SECRET_KEY|WEBHOOK_SECRET|WEBHOOK_SECRET_PREVIOUS|CLIENT_ID|CLIENT_SECRET|ISSUER|PRODUCT_ID|CURRENCY)$/;

export function passesOn(key: string): boolean {
  return (
    ofPrograms.has(key) ||
    key.startsWith('LC_') ||
    key.startsWith('OTEL_') ||
    declared.has(key) ||
    declaredShape.test(key) ||
    isStartupKey(key) ||
    key.startsWith('TOWNHALL_') ||
    key === 'no_proxy' ||
    key.endsWith('_proxy')
  );
}

/** How another process of this installation is started. */
export function ownRunner(): Runner {
  const [, program] = process.argv;
  return {
    command: process.execPath,
    arguments: isSingleExecutable || program === undefined ? [] : [program],
  };
}
