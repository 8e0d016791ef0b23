// Passwords that guessing begins with. The heads of the published lists are nearly all shorter than what is
// accepted anyway, so what is left to recognise is how people stretch them: words put together, digits and
// punctuation around them, rows of the keyboard, digits that repeat.

// Lower case: the words at the head of the published lists, and those of this product.
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

// A password that is a stretch of one of these, read in either direction, is no password.
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

/** Whether the password is one that guessing begins with. `names` are further words, such as a person's ID. */
export function isCommonPassword(password: string, names: readonly string[]): boolean {
  const text = password.toLowerCase();
  const backwards = [...text].reverse().join('');
  if (rows.some((row) => row.includes(text) || row.includes(backwards))) return true;
  if (/^(\d{1,4})\1+$/.test(text)) return true;
  const core = text.replace(/^[\d\p{P}\p{S}\s]{1,256}/u, '').replace(/[\d\p{P}\p{S}\s]{1,256}$/u, '');
  const known = new Set([...words, ...names.map((name) => name.toLowerCase())]);
  return isMadeOf(core, known) || isMadeOf(text, known);
}

function isMadeOf(text: string, known: ReadonlySet<string>): boolean {
  if (text === '') return false;
  const longest = Math.max(...[...known].map((word) => word.length));
  // reached[end]: whether what stands before `end` consists of words. Every piece is looked at once, so no
  // text makes this slow.
  const reached = [true];
  for (let end = 1; end <= text.length; end += 1) {
    reached[end] = false;
    for (let start = Math.max(0, end - longest); start < end && !reached[end]; start += 1) {
      reached[end] = reached[start] === true && known.has(text.slice(start, end));
    }
  }
  return reached[text.length] === true;
}
