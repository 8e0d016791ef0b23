// E-mail, and the only file that knows nodemailer. Where it goes and from whom it comes is looked up for every
// message, so that an operator's change needs no restart. No message is kept, and none is logged.
import { createTransport, type Transporter } from 'nodemailer';
import { isLoopbackHost } from '../kernel/http/address.ts';
import { Problem } from '../kernel/problem.ts';
import type { Requirement } from './service.ts';

export interface Message {
  to: string;
  subject: string;
  text: string;
}

export interface MailNeeds {
  /** `SMTP_URL` and `MAIL_FROM` as they are now. */
  env: { get(key: string): string | undefined };
  /** Between a connection, or a command, and the server's answer to it. */
  deadlineMs?: number;
}

export interface Mail {
  readonly env: readonly Requirement[];
  /** Whether a message could be sent at all. */
  isConfigured(): boolean;
  /** Resolves once the mail server has taken the message. Throws 502 or 504 when it has not. */
  send(message: Message): Promise<void>;
  close(): void;
}

const env: readonly Requirement[] = [
  {
    key: 'SMTP_URL',
    description: 'The mail server for login codes, such as smtps://user:password@mail.example:465.',
    required: false,
  },
  {
    key: 'MAIL_FROM',
    description: 'The sender of login codes, such as Shop <login@shop.example>.',
    required: false,
    secret: false,
  },
];

export function mail({ env: settings, deadlineMs = 10_000 }: MailNeeds): Mail {
  let current: { url: string; transport: Transporter } | undefined;

  function transportTo(url: string): Transporter {
    if (current?.url === url) return current.transport;
    current?.transport.close();
    current = { url, transport: createTransport(connection(url, deadlineMs)) };
    return current.transport;
  }

  function read(): { url: string; from: string } | null {
    const url = settings.get('SMTP_URL');
    const from = settings.get('MAIL_FROM');
    return url !== undefined && from !== undefined && /^smtps?:$/.test(protocolOf(url))
      ? { url, from }
      : null;
  }

  return {
    env,
    isConfigured: () => read() !== null,
    async send({ to, subject, text }) {
      const where = read();
      if (where === null)
        throw new Problem('upstream_failed', 'upstream_failed', 'This server cannot send e-mail.');
      try {
        // As an object the address is taken for one, whatever is in it.
        await transportTo(where.url).sendMail({
          from: where.from,
          to: { name: '', address: to },
          subject,
          text,
        });
      } catch (cause) {
        throw failure(cause);
      }
    },
    close() {
      current?.transport.close();
      current = undefined;
    },
  };
}

function connection(url: string, deadlineMs: number) {
  const { username, hostname } = new URL(url);
  return {
    url,
    // A password is not sent in the clear over a network, whatever the server offers.
    requireTLS: username !== '' && !isLoopbackHost(hostname),
    connectionTimeout: deadlineMs,
    greetingTimeout: deadlineMs,
    socketTimeout: deadlineMs,
    dnsTimeout: deadlineMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  };
}

// The library's message may name the address and what the server said to it; only its code is kept.
function failure(cause: unknown): Problem {
  const { code } = cause as { code?: unknown };
  const reason = new Error(
    `The mail server did not take the message: ${typeof code === 'string' ? code : 'no code'}.`,
  );
  return code === 'ETIMEDOUT'
    ? new Problem('upstream_timeout', 'upstream_timeout', 'The mail server did not answer in time.', {
        cause: reason,
      })
    : new Problem('upstream_failed', 'upstream_failed', 'The e-mail could not be sent.', { cause: reason });
}

function protocolOf(url: string): string {
  return URL.canParse(url) ? new URL(url).protocol : '';
}
