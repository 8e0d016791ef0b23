// A mail server for one test file that stores every message it receives.
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';
import { until } from '../../support/until.ts';

export interface Letter {
  to: string;
  subject: string;
  text: string;
  /** The eight-digit code of the text; empty without one. */
  code: string;
}

export interface Mailbox {
  url: string;
  letters: Letter[];
  /** The newest letter to the address once there are `count` of them; throws after a timeout. */
  letterTo(address: string, count?: number): Promise<Letter>;
  close(): Promise<void>;
}

export async function startMailbox(): Promise<Mailbox> {
  const letters: Letter[] = [];
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS', 'AUTH'],
    logger: false,
    onData(stream, session, done) {
      let raw = '';
      stream.setEncoding('utf8').on('data', (chunk: string) => (raw += chunk));
      stream.on('end', () => {
        const [head = '', ...rest] = raw.split('\r\n\r\n');
        // Remove the soft line breaks of quoted-printable.
        const text = rest.join('\r\n\r\n').replaceAll('=\r\n', '');
        const subject = /^Subject: (.*)$/m.exec(head)?.[1] ?? '';
        const code = /(\d{4}) (\d{4})/.exec(text)?.slice(1).join('') ?? '';
        for (const { address } of session.envelope.rcptTo) letters.push({ to: address, subject, text, code });
        done();
      });
    },
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.server.address() as AddressInfo;
  return {
    url: `smtp://127.0.0.1:${port}`,
    letters,
    async letterTo(address, count = 1) {
      const lettersTo = () => letters.filter(({ to }) => to === address);
      await until(() => lettersTo().length >= count, `${count} letters came to ${address}`);
      return lettersTo().at(-1) as Letter;
    },
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}
