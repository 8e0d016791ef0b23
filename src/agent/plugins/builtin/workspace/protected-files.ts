// Files that other programs run or read as configuration without a prompt: hooks,
// configuration of tools, definitions of tasks. A change by an agent could become a
// command on the operator's machine later, so each change needs an approval.

// Names are compared in lower case: some file systems treat both cases as one name.
const protectedFolders: ReadonlySet<string> = new Set([
  '.git',
  '.hg',
  '.svn',
  '.jj',
  '.husky',
  '.githooks',
  '.vscode',
  '.idea',
  '.devcontainer',
  '.direnv',
  '.cargo',
  '.config',
  '.ssh',
  '.gnupg',
]);

const protectedFiles: ReadonlySet<string> = new Set([
  // Repositories and their hooks
  // With a file of this name, a folder can be a repository under any name.
  'head',
  '.gitmodules',
  '.gitconfig',
  '.pre-commit-config.yaml',
  'lefthook.yml',
  '.lefthook.yml',
  // Shells and tools that read a file of the folder they are started in
  '.bashrc',
  '.bash_profile',
  '.bash_login',
  '.bash_logout',
  '.profile',
  '.zshrc',
  '.zshenv',
  '.zprofile',
  '.zlogin',
  '.zlogout',
  '.kshrc',
  '.cshrc',
  '.tcshrc',
  '.inputrc',
  '.envrc',
  '.vimrc',
  '.exrc',
  '.nvimrc',
  '.nvim.lua',
  '.emacs',
  '.dir-locals.el',
  '.gdbinit',
  '.lldbinit',
  '.screenrc',
  '.tmux.conf',
  '.curlrc',
  '.wgetrc',
  '.netrc',
  '.mailcap',
  '.mise.toml',
  'mise.toml',
  '.tool-versions',
  // Package managers and their scripts
  'package.json',
  '.npmrc',
  '.yarnrc',
  '.yarnrc.yml',
  '.pnpmfile.cjs',
  'pnpm-workspace.yaml',
  'bunfig.toml',
  '.pypirc',
  'pip.conf',
  'pyproject.toml',
  'setup.py',
  'composer.json',
  '.bundle',
  // Tasks that are called by name
  'townhall.json',
  'makefile',
  'gnumakefile',
  'justfile',
  '.justfile',
  'taskfile.yml',
  'taskfile.yaml',
  'rakefile',
  // Builds that run elsewhere with secrets of their own, and programs that agents start
  '.gitlab-ci.yml',
  '.travis.yml',
  'jenkinsfile',
  '.mcp.json',
]);

/**
 * The parts of a repository's folder that decide which programs git runs; git itself writes the other parts.
 */
export const repositoryParts: ReadonlySet<string> = new Set([
  'hooks',
  'config',
  'config.worktree',
  'commondir',
  'info',
  'modules',
  'worktrees',
]);

/** Whether an entry of this name needs an approval to be written. */
export function isProtectedName(name: string): boolean {
  const key = foldName(name);
  // Windows file systems also find .git by its short name.
  return protectedFolders.has(key) || protectedFiles.has(key) || /^git~\d$/.test(key);
}

/**
 * Whether the names along a path lead to or through a protected entry;
 * `.github/workflows` counts, `.github` does not.
 */
export function isProtectedPath(path: string): boolean {
  const names = path.split(/[/\\]/).filter((name) => name !== '' && name !== '.');
  return names.some(
    (name, index) =>
      isProtectedName(name) ||
      (foldName(name) === 'workflows' && index > 0 && foldName(names[index - 1] ?? '') === '.github'),
  );
}

/**
 * One form for names that a file system may treat as equal: letter case, composed and decomposed
 * letters, characters that HFS+ ignores, and dots and spaces at the end, which Windows ignores.
 */
function foldName(name: string): string {
  return foldCase(name).replace(/[. ]+$/, '');
}

/** Like `foldName`, but keeps dots and spaces at the end, so that it also works for whole paths. */
export function foldCase(name: string): string {
  return name
    .replaceAll(/\p{Default_Ignorable_Code_Point}/gu, '')
    .normalize('NFKC')
    .toLowerCase();
}

/**
 * The file names that a word of a command may contain: the word itself, the value of an option, and
 * the words of a command line for sh within it.
 */
export function namedFiles(word: string): string[] {
  const pieces = word.split(/[\s;|&()<>'"`=,:]+/);
  // `-r./setup.js` has its value directly after the letter.
  const values = pieces.flatMap((piece) => [piece, piece.replace(/^-\w/, '')]);
  // Splitting `file:///path` at the colon leaves `///path`.
  const paths = [word, ...values].map((name) => (name.startsWith('///') ? name.slice(2) : name));
  return [...new Set(paths)].filter((name) => name !== '' && !name.startsWith('-') && !name.includes('\0'));
}
