// Actions for the publisher of a catalog: its content as a document, a key, and signatures.
import { createPrivateKey, type KeyObject } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { catalogDocument, curatedModels, parseCatalogDocument } from '../../gateway/ai/index.ts';
import { SettingError } from '../../kernel/settings.ts';
import { action, type Action } from '../command-line/command.ts';
import { catalogOptions, openCatalogStore } from './catalog-store.ts';
import { createPrivateKeyPem, publicKeyText, signDocument } from './signature.ts';

export const exportAction: Action = action({
  path: 'export',
  summary: 'Prints the catalog as a document that you can change, sign and publish.',
  options: catalogOptions,
  async run({ options: { json: _json, ...flags }, ...context }) {
    const { builtIn, current } = await openCatalogStore(flags, context);
    const document = catalogDocument({ builtIn, current, publishedAt: new Date().toISOString() });
    context.print(JSON.stringify(document, null, 2));
    return 0;
  },
});

export const keygenAction: Action = action({
  path: 'keygen',
  summary: 'Writes a new private key to a file, and prints the public key for MODELS_CATALOG_KEYS.',
  arguments: { file: { placeholder: 'FILE' } },
  async run({ arguments: { file }, print }) {
    const { pem, publicKey } = createPrivateKeyPem();
    await writeFile(file, pem, { mode: 0o600, flag: 'wx' });
    print(publicKey);
    return 0;
  },
});

export const signAction: Action = action({
  path: 'sign',
  summary: 'Checks a catalog document and writes its signature beside it, with .sig at the end of the name.',
  arguments: { file: { placeholder: 'FILE' } },
  options: {
    'key-file': { kind: 'value', placeholder: 'FILE', summary: 'The private key that keygen has written.' },
  },
  async run({ arguments: { file }, options: { 'key-file': keyFile }, print, printError }) {
    if (keyFile === undefined)
      throw new SettingError(
        '--key-file is missing: pass a private key that "townhall models keygen" wrote.',
      );
    const key = await readPrivateKey(keyFile);
    const document = await readFile(file);
    const { published_at: publishedAt, pins } = parseCatalogDocument(
      document.toString('utf8'),
      file,
      curatedModels(),
    );
    if (pins !== undefined)
      throw new Error(`${file}: pins: a published catalog cannot pin entries; remove them.`);
    if (publishedAt === undefined)
      printError(`${file} has no published_at, so gateways cannot refuse an older catalog in its place.`);
    await writeFile(`${file}.sig`, `${signDocument(document, key)}\n`);
    print(`Signed by ${publicKeyText(key)}: ${file}.sig`);
    return 0;
  },
});

async function readPrivateKey(path: string): Promise<KeyObject> {
  const pem = await readFile(path, 'utf8');
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === 'ed25519') return key;
  } catch {
    // An unreadable key gets the same message as a key of another type: the original error may quote
    // the key.
  }
  throw new Error(`${path} has no Ed25519 private key; "townhall models keygen" writes one.`);
}
