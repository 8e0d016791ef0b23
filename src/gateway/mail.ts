// Sends e-mail through nodemailer, which only this file imports; it is loaded for the first message. The mail
// server and the sender are read from the environment for every message, so that a change needs no restart.
// Messages are neither stored nor logged.
import type { Transporter } from 'nodemailer';
import { isLoopbackHost } from '../kernel/http/address.ts';
import { Problem } from '../kernel/problem.ts';
import type { Requirement } from './service.ts';

export interface Message {
  to: string;
  subject: string;
  text: string;
}

export interface Mail {
  readonly env: readonly Requirement[];
  /** Whether `SMTP_URL` and `MAIL_FROM` are set and valid. */
  isConfigured(): boolean;
  /** Resolves when the mail server has accepted the message. Throws 502 or 504 otherwise. */
  send(message: Message): Promise<void>;
  close(): void;
}

const requirements: readonly Requirement[] = [
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

export function mail({
  env,
  deadlineMs = 10_000,
}: {
  /** The environment with `SMTP_URL` and `MAIL_FROM`. */
  env: { get(key: string): string | undefined };
  /** The deadline for connecting, and for the mail server's answer to each command. */
  deadlineMs?: number;
}): Mail {
  const transports = createTransportCache(deadlineMs);

  function readSettings(): { url: string; from: string } | null {
    const url = env.get('SMTP_URL');
    const sender = env.get('MAIL_FROM');
    return url !== undefined && sender !== undefined && /^smtps?:$/.test(protocolOf(url))
      ? { url, from: sender }
      : null;
  }

  return {
    env: requirements,
    isConfigured: () => readSettings() !== null,
    async send({ to, subject, text }) {
      const settings = readSettings();
      if (settings === null)
        throw new Problem('upstream_failed', 'upstream_failed', 'This server has no mail server configured.');
      try {
        // Pass the address as an object: nodemailer would search a string for names and more addresses.
        const transport = await transports.get(settings.url);
        await transport.sendMail({
          from: settings.from,
          to: { name: '', address: to },
          subject,
          text,
        });
      } catch (cause) {
        throw sendError(cause);
      }
    },
    close: () => transports.close(),
  };
}

/** Keeps the transport of the last URL open. */
function createTransportCache(deadlineMs: number): {
  get(url: string): Promise<Transporter>;
  close(): void;
} {
  let cached: { url: string; transport: Promise<Transporter> } | undefined;

  function close(): void {
    void cached?.transport.then(
      (transport) => transport.close(),
      () => {},
    );
    cached = undefined;
  }

  return {
    get(url) {
      if (cached?.url === url) return cached.transport;
      close();
      const entry = { url, transport: openTransport(url, deadlineMs) };
      cached = entry;
      // A transport that could not be opened is opened again for the next message.
      entry.transport.catch(() => {
        if (cached === entry) cached = undefined;
      });
      return entry.transport;
    },
    close,
  };
}

async function openTransport(url: string, deadlineMs: number): Promise<Transporter> {
  const { createTransport } = await import('nodemailer');
  return createTransport(transportOptions(url, deadlineMs));
}

function transportOptions(url: string, deadlineMs: number) {
  const { username, hostname } = new URL(url);
  return {
    url,
    // Never send a password unencrypted over a network, even when the server does not offer TLS.
    requireTLS: username !== '' && !isLoopbackHost(hostname),
    connectionTimeout: deadlineMs,
    greetingTimeout: deadlineMs,
    socketTimeout: deadlineMs,
    dnsTimeout: deadlineMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  };
}

// The library's message may quote the recipient and the server's answer. Log its code only.
function sendError(cause: unknown): Problem {
  const { code } = cause as { code?: unknown };
  const reason = new Error(
    `The mail server did not accept the message: ${typeof code === 'string' ? code : 'no code'}.`,
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
