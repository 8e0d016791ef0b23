// A TCP proxy between one gateway and PostgreSQL: cuts connections, drops responses
// of executed statements, and holds responses back from a chosen statement on.
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export interface DatabaseProxy {
  /** The database through this proxy. */
  readonly url: string;
  /** Ends all connections and refuses new ones until `heal`. */
  cut(): void;
  heal(): void;
  /**
   * From now on drops this share of the responses together with their connections;
   * the statements are executed.
   */
  dropAnswers(share: number): void;
  /**
   * Waits for a statement that contains this text, and holds back the responses to it and to all
   * later statements on its connection. Resolves when the statement has arrived.
   */
  holdBackFrom(text: string): Promise<void>;
  /** Delivers the responses that were held back. */
  release(): void;
  close(): Promise<void>;
}

interface Link {
  client: Socket;
  /** Responses that are held back; null while responses are passed on. */
  pendingBytes: Buffer[] | null;
}

export async function startDatabaseProxy(databaseUrl: string, random: () => number): Promise<DatabaseProxy> {
  const target = new URL(databaseUrl);
  const links = new Set<Link>();
  let isCut = false;
  let droppedShare = 0;
  let awaitedText: { text: string; resolve(): void } | null = null;

  const server = createServer((client) => {
    if (isCut) return void client.destroy();
    const database = connect(Number(target.port || 5432), target.hostname);
    const link: Link = { client, pendingBytes: null };
    links.add(link);
    const end = (): void => {
      links.delete(link);
      client.destroy();
      database.destroy();
    };
    for (const socket of [client, database]) socket.on('error', end).on('close', end);
    client.on('data', (bytes) => {
      if (awaitedText !== null && bytes.includes(awaitedText.text)) {
        link.pendingBytes = [];
        awaitedText.resolve();
        awaitedText = null;
      }
      database.write(bytes);
    });
    database.on('data', (bytes) => {
      if (random() < droppedShare) end();
      else if (link.pendingBytes === null) client.write(bytes);
      else link.pendingBytes.push(bytes);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(databaseUrl);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  const endAll = (): void => {
    for (const { client } of links) client.destroy();
  };

  return {
    url: url.href,
    cut() {
      isCut = true;
      endAll();
    },
    heal: () => void (isCut = false),
    dropAnswers: (share) => void (droppedShare = share),
    holdBackFrom: (text) => new Promise((resolve) => (awaitedText = { text, resolve })),
    release() {
      for (const link of links) {
        for (const bytes of link.pendingBytes ?? []) link.client.write(bytes);
        link.pendingBytes = null;
      }
    },
    close() {
      endAll();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}
