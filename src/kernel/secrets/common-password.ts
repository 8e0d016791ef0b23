// Recognizes common passwords. Nearly all entries at the top of published lists are shorter than the
// minimum length, so this file recognizes extended ones: concatenated words, added digits and
// punctuation, keyboard rows, repeated digits.

// The most common words of published lists, and this product's words, in lower case.
const words: readonly string[] = [
  'password',
  'passwort',
  'passw0rd',
  'p@ssw0rd',
  'p@ssword',
  'pass',
  'admin',
  'administrator',
  'root',
  'user',
  'guest',
  'login',
  'default',
  'changeme',
  'secret',
  'secure',
  'letmein',
  'welcome',
  'hello',
  'iloveyou',
  'love',
  'you',
  'monkey',
  'dragon',
  'football',
  'baseball',
  'basketball',
  'soccer',
  'hockey',
  'master',
  'sunshine',
  'princess',
  'superman',
  'batman',
  'starwars',
  'pokemon',
  'naruto',
  'shadow',
  'michael',
  'jordan',
  'jennifer',
  'ashley',
  'charlie',
  'daniel',
  'jessica',
  'thomas',
  'killer',
  'hunter',
  'ranger',
  'buster',
  'pepper',
  'ginger',
  'cookie',
  'flower',
  'cheese',
  'banana',
  'summer',
  'winter',
  'spring',
  'autumn',
  'computer',
  'internet',
  'google',
  'samsung',
  'liverpool',
  'chelsea',
  'arsenal',
  'trustno',
  'whatever',
  'unbelievable',
  'christopher',
  'qwerty',
  'qwertz',
  'azerty',
  'qwertyuiop',
  'qwertzuiop',
  'azertyuiop',
  'asdfgh',
  'asdfghjkl',
  'zxcvbn',
  'zxcvbnm',
  'abc',
  'abcdef',
  'test',
  'testing',
  'demo',
  'correcthorsebatterystaple',
  'townhall',
  'bureau',
  'city',
  'gateway',
  'agent',
  'model',
  'credit',
  'credits',
  'server',
  'database',
  'localhost',
];

// A password that is a substring of one of these, in either direction, is refused.
const rows: readonly string[] = [
  'abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz',
  '1234567890'.repeat(4),
  '1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p',
  'qazwsxedcrfvtgbyhnujmikolp',
  '1q2w3e4r5t6y7u8i9o0p',
  'q1w2e3r4t5y6u7i8o9p0',
  'zaq12wsxcde34rfvbgt56yhn',
  '`1234567890-=',
  "qwertyuiop[]asdfghjkl;'zxcvbnm,./",
];

/**
 * Whether the password is among the first that an attacker tries. `names` are further words, such
 * as a person's ID.
 */
export function isCommonPassword(password: string, names: readonly string[]): boolean {
  const text = password.toLowerCase();
  const reversedText = [...text].reverse().join('');
  if (rows.some((row) => row.includes(text) || row.includes(reversedText))) return true;
  if (/^(\d{1,4})\1+$/.test(text)) return true;
  const core = text.replace(/^[\d\p{P}\p{S}\s]{1,256}/u, '').replace(/[\d\p{P}\p{S}\s]{1,256}$/u, '');
  const dictionary = new Set([...words, ...names.map((name) => name.toLowerCase())]);
  return consistsOf(core, dictionary) || consistsOf(text, dictionary);
}

function consistsOf(text: string, dictionary: ReadonlySet<string>): boolean {
  if (text === '') return false;
  const maxWordLength = Math.max(...[...dictionary].map((word) => word.length));
  // Dynamic programming: isReachable[end] is whether the text before `end` consists
  // of words. Linear in the text, times the longest word.
  const isReachable = [true];
  for (let end = 1; end <= text.length; end += 1) {
    isReachable[end] = false;
    for (let start = Math.max(0, end - maxWordLength); start < end && !isReachable[end]; start += 1) {
      isReachable[end] = isReachable[start] === true && dictionary.has(text.slice(start, end));
    }
  }
  return isReachable[text.length] === true;
}
