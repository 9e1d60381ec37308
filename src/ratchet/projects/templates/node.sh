
# Installs a package manager that does not come with Node.
need_manager() {
  command -v "$1" >/dev/null 2>&1 || run npm install --global "$1"
}
