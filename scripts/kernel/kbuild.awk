# Makes a kernel's assembly file of what rustc has written (`--emit asm`), so that the kernel's own build compiles it, runs objtool over it,
# and knows how to unwind through it. What GCC does in C by options of the kernel, this does here:
# - Each function begins with endbr64, as an indirect call needs under indirect branch tracking. Elsewhere it does nothing.
# - A return, and an indirect call or jump, is the kernel's macro, which goes through a thunk where the kernel wants that. r11 is free at a
#   call by the calling convention.
# There must be no jump tables: their targets are inside of functions.
BEGIN { print "#include <linux/linkage.h>\n#include <asm/nospec-branch.h>\n" }
/^\t\.section\t|^\t\.text/ { left_out = /\t\.(debug|tbss)/ } # memory of threads is user space's; the kernel has none
left_out || /^\t*#|^\t\.(file|loc|cfi_[a-z_]*|addrsig|addrsig_sym|ident)([\t ]|$)/ { next }
{ sub(/[\t ]+#.*/, "") }
/^\t\.type\t.*,@function/ { name = $2; sub(/,.*/, "", name) }
name != "" && $0 == name ":" { print $0 "\n\tendbr64"; next }
/^\tretq?$/ { print "\tRET"; next }
/^\tcallq?\t\*/ { sub(/^\tcallq?\t\*/, ""); print "\tmovq\t" $0 ", %r11\n\tCALL_NOSPEC r11"; next }
/^\tjmpq?\t\*/ { sub(/^\tjmpq?\t\*/, ""); print "\tmovq\t" $0 ", %r11\n\tJMP_NOSPEC r11"; next }
{ print }
/^\tcallq?\tlw_k_die$/ { print "\tud2" } # objtool does not know that it does not return
