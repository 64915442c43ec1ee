"""Scripts whose output on a virtual phone must equal the output of mksh and toybox."""

LANGUAGE = r"""
for i in 1 2 3; do echo $i; done
for i in a "b c" $(echo d e); do echo "[$i]"; done
for i in *.txt; do echo $i; done
set -- x "y z"; for i; do echo "[$i]"; done
i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done
i=0; until [ $i -ge 3 ]; do i=$((i+1)); done; echo $i
while true; do echo once; break; done
for i in 1 2 3 4; do [ $i = 2 ] && continue; [ $i = 4 ] && break; echo $i; done
for i in 1 2; do for j in a b; do [ $j = b ] && continue 2; echo $i$j; done; done
for i in 1 2; do for j in a b; do [ $i$j = 1b ] && break 2; echo $i$j; done; done; echo end
if true; then echo yes; else echo no; fi
if false; then echo a; elif true; then echo b; else echo c; fi
if false; then echo a; fi; echo $?
if [ -f a.txt ] && ! [ -d a.txt ]; then echo file; fi
case abc in a*) echo start;; *) echo other;; esac
case x in a|b) echo ab;; x|y) echo xy;; esac
case "$z" in "") echo empty;; esac
case abc in ?b?) echo three;; esac
case 7 in [0-5]) echo low;; [6-9]) echo high;; esac
case '*' in '*') echo star;; esac
case ab in "a*") echo literal;; a*) echo pattern;; esac
case x in (x) echo paren;; esac
case none in a) echo a;; esac; echo $?
f() { echo "$1 $# $@"; }; f a b c
f() { return 3; }; f; echo $?
f() { local x=1; y=2; }; x=0; f; echo $x$y
f() { echo in; }; f | cat; f > out; cat out
function g { echo $1; }; g hello
f() { if [ $1 -gt 0 ]; then echo $1; f $(($1-1)); fi; }; f 3
f() { set -- q; echo $1; }; set -- p; f; echo $1
f() ( x=5; echo $x ); x=1; f; echo $x
readonly r=1; r=2; echo unreached
f() { return 10; }; IFS=1; f; echo a$? "b$?"; IFS=0; f; printf '[%s]' x$?y
set -- a b; printf '[%s]' x$@y x$*y "x$@y" "x$*y" $#$1 "$#"; set --; printf '[%s]' $@ "$@" "x$@"
x=; y='a*'; z=' b '; printf '[%s]' $x "$x" $y"$y" "$z"$z w${z}w ~ a~ x$#
echo $((1+2*3)) $(((1+2)*3)) $((7/2)) $((-7/2)) $((-7%3)) $((7%-3))
echo $((1<<31)) $((2147483647+1)) $((0x1f)) $((010))
echo $[1+1] "$[1+1]" $[2]x; time echo timed; time -p false; echo $?
x=5; echo $((x++)) $((++x)) $((x--)) $((--x)) $((x+=2)) $((x*=3)) $x
echo $((1?2:3)) $((0?2:3)) $((1&&0)) $((0||2)) $((!5)) $((~5)) $((5&3)) $((5|3)) $((5^3))
x=3; y=x; echo $((y)) $((y+1))
echo $(( 1 == 1 )) $((2 != 2)) $((3<=3)) $((4>5)) $((1<2&&2<3))
i=5; ((i++)); echo $i; ((i=0)); echo $?; ((i == 0)) && echo zero
echo $((1/0)); echo unreached
echo $(( 1 + )); echo unreached
x=abc; echo ${#x} ${#unset}
p=/a/b/c.tar.gz; echo ${p##*/} ${p#*/} ${p%.*} ${p%%.*} ${p%/*}
p=a.b.c; echo ${p#a.} ${p#x} ${p%c} ${p%%[a-b]*}
x=banana; echo ${x/a/A} ${x//a/A} ${x/#b/B} ${x/%a/Z} ${x//an} ${x/z/y}
x=hello; echo ${x:1} ${x:1:3} ${x:0:1} ${x: -2}
echo ${x:-default} ${x-unset}; x=; echo "[${x:-default}]" "[${x-unset}]"
echo ${x:=assigned} $x
x=1; echo ${x:+set} "[${y:+set}]" "[${x+set}]"
echo ${x:?missing}; echo unreached
x=1; echo ${x:?missing}
echo ${x:-a  b} "${x:-a  b}" ${x:-"a  b"}
x='a  b'; echo $x; echo "$x"; echo pre$x
set -- a b c; echo $1 $# $@ "$*"; shift; echo $1 $#; shift 2; echo $#
set -- 'a b' c; printf '<%s>' "$@"; printf '<%s>' $@; printf '<%s>' "$*"; echo
set --; printf '<%s>' "$@"; printf '<%s>' "$*"; printf '<%s>' x"$@"y; echo
set -- 1 2 3 4 5 6 7 8 9 ten; echo $10 ${10}
IFS=:; x=a:b::c; set -- $x; echo $#; printf '<%s>' "$@"
IFS=,; set -- a b; echo "$*"
x='1 2 3'; set -- $x; echo $2
cat <<< word; cat <<< "two words"
while read a b; do echo "$b-$a"; done < a.txt
echo 'a:b:c' | { IFS=: read x y; echo $x $y; }
echo abc | while read x; do echo $x; done
n=0; while read l; do n=$((n+1)); done < n.txt; echo $n
printf 'no newline' | { read x; echo "$? $x"; }
exec 3< n.txt; read a <&3; read b <&3; echo $a $b
echo err >&2; echo out
{ echo a; echo b >&2; } 2>/dev/null
{ echo a; echo b >&2; } 2>&1 | wc -l
{ echo out; echo err >&2; } 3>&1 1>&2 2>&3
(echo sub; exit 3); echo $?
x=1; (x=2; echo $x); echo $x
{ x=3; }; echo $x
echo a > f; echo b >> f; cat f; > f; wc -c < f
cat < nope; echo $?
echo x > /nope/y; echo $?
echo $(echo a; echo b) "$(echo a; echo b)"
echo `echo a \`echo b\``
x=$(false); echo $?; x=$(true); echo $?
echo $(exit 3) $?; false; echo $(true) $?
true && echo a || echo b; false && echo a || echo b; false || false || echo c
! true; echo $?; ! false; echo $?
true | false; echo $?; false | true; echo $?
set -o pipefail; false | true; echo $?
set -e; false; echo unreached
set -e; if false; then :; fi; false || true; ! true; echo reached
set -e; f() { false; echo in; }; f; echo unreached
set -u; echo $undefined; echo unreached
set -f; echo *; set +f; echo *.csv
trap 'echo bye' EXIT; echo hi; exit 4
trap 'echo bye' EXIT; (echo sub); false
trap 'echo never' EXIT; trap - EXIT; echo hi
eval 'x=5; echo $x'; echo $x
eval "echo \$((1+1))"; eval; echo $?
eval 'exit 5'; echo unreached
echo 'echo sourced $1; x=9' > s; . ./s arg; echo $x
echo 'return 4; echo no' > s; . ./s; echo $?
. ./nope; echo unreached
echo 'echo $1 $#' > s; sh s a b; sh ./s 'a b'
echo 'exit 6' > s; sh s; echo $?
printf 'echo ran $1\n' > s; chmod +x s; ./s x; chmod -x s; ./s y; echo $?
sh -c 'echo $0 $1' name arg
sh -c 'echo "$@"' _ a b; x=1; sh -c 'echo "[$x]"'; export x; sh -c 'echo "[$x]"'
y=2 sh -c 'echo $y'; echo "[$y]"
x=1 y=2; echo $x$y; x=$y; echo $x
x=a; x+=b; echo $x
unset x; echo "[$x]"; f() { :; }; unset -f f; f; echo $?
[[ abc == a* ]] && echo pattern; [[ abc == "a*" ]] || echo literal; [[ a < b ]] && echo less
[[ -f a.txt && ! -d a.txt ]] && echo file; [[ -z "" || x = y ]] && echo or
[[ ( a = a ) && 3 -gt 2 ]]; echo $?; [[ -n $undefined ]]; echo $?
x='a b'; [[ $x = 'a b' ]] && echo unsplit
[[ ! -f nope && ( a != a* || b == [a-c] ) ]]; echo $?; y='*'; [[ abc == $y ]]; echo $?
[[ "-f" == -f ]]; echo $?; [[ -z "" && ! -n "" ]]; echo $?
[[ "!" != x ]]; echo $?; [[ "" ]]; echo $?
[ ! = x ]; echo $?; [ -n = -n ]; echo $?; [ ! -n "" -a \( a = b -o 1 -le 1 \) ]; echo $?
[ -n x -a ]; echo $?; [ a = ]; echo $?; [ \( a ]; echo $?; [ -Q x ]; echo $?; [ ]; echo $?
[ a = a -a b = b ]; echo $?; [ a = b -o c = c ]; echo $?; [ ! a = b ]; echo $?
[ -n "" ]; echo $?; [ -z "" ]; echo $?; [ "" ]; echo $?; [ ]; echo $?
[ 1 -eq 1 ]; echo $?; [ 1 -lt 0 ]; echo $?; [ 3 -ge 3 ]; echo $?; test 2 -ne 2; echo $?
[ -e a.txt ]; echo $?; [ -d d ]; echo $?; [ -s raw ]; echo $?; [ -x a.txt ]; echo $?
[ -f d ]; echo $?
[ a b c ]; echo $?
[ 1 = 1; echo $?
[ \( a = a \) ]; echo $?
break; echo $?; return 3; echo unreached
exit 300
nope; echo $?; ./nope; echo $?; ./d; echo $?
command -v nope; echo $?; command echo x
x=5 eval 'echo $x'; x=6 true; echo $x
echo a\ b 'c'"d"$'e\tf' \$x
echo "a\tb" 'c\nd' "e\\f"; echo -n x; echo -e 'y\c'; echo z
echo {single} {a,b
echo ~ "~" a~; cd ~; pwd
echo * d/* *.none '*' [an]*.txt
echo a#b # comment
echo one; # comment
true; echo $?; echo $#
a=1; b=2; echo "$a$b" ${a}b '$a'
sleep 0 & wait; echo $?
(exit 3) & wait $!; echo $?
sleep 5 & sleep 0.05; kill $!; wait $!; echo $?
kill -9 $$; echo unreached
kill 99999999; echo $?
echo $(sleep 0.01 & echo now)
{ echo a; sleep 0.05; echo b; } | while read x; do echo "got $x"; done
yes | head -3; yes no | head -c 4
for i in 1 2; do echo $i; done | tac; for i in 1 2; do echo $i; done > f; cat f
if grep -q apple a.txt; then echo found; fi
i=0; while :; do i=$((i+1)); [ $i -gt 40 ] && break; done; echo $i
x=$(for i in 1 2 3; do echo $i; done); echo $x
f() { echo $(( $1 <= 1 ? 1 : $1 * $(f $(($1-1))) )); }; f 5
a=x; b=a; eval echo \$$b
x=1; while [ $x -le 3 ]; do case $x in 2) echo two;; *) echo $x;; esac; x=$((x+1)); done
echo "${x:-"$(echo "nested ${y:-deep}")"}"
x='*'; echo "$x"; echo '$x'; set -- "$x"; echo "$1"
echo a; } ; echo b
for; do echo; done
if true; then echo; done
echo 'unclosed
( echo a
echo a | ; echo b
echo a && || echo b
;; echo
""".strip().split("\n")

DOCUMENTS = r"""
cat <<E; echo after
plain $((1+1)) $(echo sub) `echo tick` \$no
E

cat <<'F'
raw $x $(no) \n
F

x=7; cat <<E
$x "quoted" 'single' \\ $((x*2))
E

cat <<-E
	tab
		tabs
	E

cat <<A <<B
first
A
second
B

cat <<E | tr a-z A-Z
upper
E

if true; then cat <<E; fi; echo x
in if
E

while read -r l; do echo "<$l>"; done <<E
  lead
back\slash
E

read x <<E; echo $x $?
one two
E

echo "$(cat <<E
inner
E
)"

cat <<E
unclosed

f() {
  # comment
  case $1 in
    a | b)
      echo "ab"
      ;;
    *)
      for i in 1 2
      do
        echo "$1$i"
      done ;;
  esac
}
f a
f z

if [ 1 = 1 ]
then
  echo a \
    b
elif false
then :
else
  echo c
fi

while read line
do
  set -- $line
  [ "$2" -gt 2 ] || continue
  echo "$1: $2"
done < a.txt | sort

true &&
  echo joined |
  cat
""".strip("\n").split("\n\n")

PROGRAMS = r"""
sed s/a/b/ a.txt
sed 's/a/b/g' a.txt
sed -n 2p a.txt; sed -n '2,3p' a.txt; sed -n '$p' a.txt
sed 2d a.txt; sed '/apple/d' a.txt; sed '$d' a.txt; sed '1!d' a.txt
sed -n '/apple/p' a.txt
sed -e s/a/X/ -e s/n/Y/ a.txt
sed -E 's/([a-z]+) ([0-9]+)/\2 \1/' a.txt
sed 's/\([a-z]*\) \([0-9]*\)/\2-\1/' a.txt
sed 's/[0-9]/<&>/' a.txt
sed -n 's/apple/PEAR/p' a.txt
sed '$a end' a.txt; sed '2c changed' a.txt
sed 's/^/> /;s/$/ </' a.txt
sed 'y/abc/ABC/' a.txt
sed = n.txt; sed -n '$=' n.txt
sed -n '/banana/,/cherry/p' a.txt
sed 2q a.txt
sed ':a;N;$!ba;s/\n/,/g' n.txt
sed 'N;s/\n/+/' n.txt
sed G n.txt; sed -n '1!G;h;$p' n.txt
sed 's/APPLE/x/I' a.txt; sed 's/a\+/_/' a.txt
sed '/apple/{s/1/one/;s/0/zero/}' a.txt
sed s/x
sed -i s/9/nine/ n.txt; cat n.txt
sed s/a/b/ nope; echo $?
echo x | sed s/x/y/; sed s/x/y/ < n.txt | head -1
echo s/1/I/ > p; sed -f p n.txt; sed -n -e '1p' -- n.txt
awk '{print $1}' a.txt; awk '{print $2, $1}' a.txt
awk -F, '{print $2}' c.csv; awk -F , -v x=5 'NR>1{print $3*x}' c.csv
awk 'NR==2' a.txt; awk '$2>2{print $1}' a.txt; awk '/apple/' a.txt
awk '{s+=$2} END {print s}' a.txt; awk 'END{print NR}' a.txt
awk '{a[$1]+=$2} END {for (k in a) print k, a[k]}' a.txt | sort
awk '{printf "%-10s|%5d|\n", $1, $2}' a.txt
awk 'BEGIN{for(i=0;i<3;i++) print i}'; awk 'BEGIN{while(i<3){i++; if(i==2)continue; print i}}'
awk '{print length($0), toupper($1), substr($1,2,3)}' a.txt
awk '{gsub(/a/,"A"); print}' a.txt
awk 'BEGIN{print 1/3, 1e6, 100000000, 0.1+0.2}'
awk 'BEGIN{print index("hello","l"), match("hello",/l+/), RSTART, RLENGTH}'
awk '{n=split($0,p," "); print n, p[2]}' a.txt
awk 'BEGIN{OFS="-"; $1="a"; $3="c"; print; print NF}'; awk '{print $NF}' a.txt
awk 'function f(x){return x*2} BEGIN{print f(4)}'
awk 'BEGIN{printf "%s %c %x %5.2f %%\n","s","q",255,3.14159}'
awk '{print > "out"} END{close("out"); while((getline l < "out")>0) print "r",l}' n.txt; cat out
awk 'NR>1 && $2!=10 {print; next} {print "skip"}' a.txt
awk 'BEGIN{exit 3}'; echo $?
awk '{x = $2 > 2 ? "big" : "small"; print x}' a.txt
echo 'a b' | awk '{print $2}'; echo 'BEGIN{print 5}' > p; awk -f p
x=1; export x; awk 'BEGIN{print ENVIRON["x"]}'
echo "mCurrentFocus=Window{x u0 a/b}" | awk -F'[ /}]' '{print $3, $4}'
tr a-z A-Z < a.txt; tr -d a < a.txt; tr -s p < a.txt; tr -cd 0-9 < a.txt; tr '\n' ' ' < n.txt
tr '[:lower:]' '[:upper:]' < a.txt
sort n.txt; sort -n n.txt; sort -rn n.txt; sort -u a.txt; sort -r a.txt
sort -k2 -n a.txt; sort -k 2,2nr a.txt; sort -t, -k3 c.csv
sort a.txt | uniq -c; cut -d' ' -f1 a.txt | sort | uniq -d; cut -d' ' -f1 a.txt | sort | uniq -u
sort -o n.txt n.txt; cat n.txt
uniq n.txt; uniq < n.txt | wc -l
head -2 n.txt; head -n 1 a.txt; head -c 5 a.txt; head -1 a.txt n.txt
tail -2 n.txt; tail -n +3 n.txt; tail -c 4 n.txt; tail -n 1 a.txt
tail -n1 a.txt n.txt
wc n.txt; wc -l n.txt; wc -lc < n.txt; wc a.txt n.txt; wc -c < a.txt; wc -w a.txt
cut -c1-3 a.txt; cut -d, -f1,3 c.csv; cut -d, -f2- c.csv; cut -b 2 n.txt; echo 'a:b' | cut -d: -f2
basename /a/b.txt .txt; basename /a/b/; basename x; dirname /a/b/c; dirname x; dirname /a
seq 3; seq 2 4; seq 1 2 7; seq 3 -1 1; seq -s, 3; seq -w 8 10; seq 1 0.5 2; seq 5 3; seq -3 -1
expr 1 + 2; expr 3 \* 4; expr length hello; expr substr hello 2 3; expr abc : 'a\(.*\)'; expr 1 = 2
base64 a.txt; echo aGkK | base64 -d; base64 raw; base64 raw | base64 -d | md5sum
md5sum a.txt; sha1sum < a.txt; sha256sum a.txt n.txt
xxd n.txt; xxd -p n.txt; od -c n.txt; od -An -tx1 n.txt; od -An -tx1 raw
rev a.txt; tac n.txt; paste -sd, n.txt; paste n.txt a.txt; nl a.txt; cmp a.txt n.txt
comm n.txt n.txt
split -l 2 n.txt; ls; cat xab
factor 12; cksum n.txt; strings n.txt; diff a.txt a.txt; echo $?
sort raw | md5sum; sed p raw | md5sum; cat raw | tr a b | md5sum
find . -name '*.txt' | sort; find . -type d | sort; find d; find . -maxdepth 1 -type f | sort
find . -type f -name 'a*' -o -name 'c*' | sort; find . ! -name '*.txt' -type f | sort
find . -name '*.txt' -exec wc -l {} \; | sort; find . -name '*.txt' -exec echo {} + | wc -w
find nope; echo $?; find . -iname 'A.TXT'; find . -path './d/*'
find . -name d -prune -o -print | sort
find . -mindepth 1 -type f -size -1k | wc -l; find d -type f -print0 | xargs -0 cat
echo a b c | xargs echo x; echo a b c | xargs -n1 echo; echo "'a b' c" | xargs -n1 echo
ls *.txt | xargs wc -l; printf 'a\0b\0' | xargs -0 -n1 echo; echo | xargs echo empty
grep -c apple a.txt; grep -n apple a.txt n.txt; grep -l apple *.txt; grep -v apple a.txt
grep -o '[0-9]*' a.txt
grep -A1 banana a.txt; grep -B1 cherry a.txt; grep -C1 cherry a.txt; grep -e banana -e cherry a.txt
grep -E 'a|c' n.txt; grep -i APPLE a.txt; grep -q zzz a.txt; echo $?; grep -w app a.txt
grep -x 9 n.txt; grep -x -e 9 -e apple n.txt a.txt; grep -o -e ap -e a -e "[0-9]" a.txt
grep -ivwe apple -e 9 a.txt n.txt
echo apple > p; grep -f p a.txt; grep -c -f p -e 9 a.txt n.txt; grep -f nope a.txt; echo $?
grep -r deep . ; grep -rl deep d; grep apple nope; echo $?; grep -h apple a.txt c.csv
grep -H apple a.txt
grep -m1 apple a.txt; grep -F . c.csv; grep -c zzz a.txt n.txt; grep -L apple *.txt
grep '^$' a.txt; echo $?
echo x | tee t.txt; cat t.txt; echo y | tee -a t.txt > /dev/null; cat t.txt
stat -c %s a.txt; stat -c '%n %F' a.txt d; stat -c %a a.txt; stat nope; echo $?
du -b a.txt
printf '%05.1f|%-5s|%5s|%x|%o|%c|%e\n' 3.14159 ab cd 255 8 xyz 12345.678
printf '%s\n' a b c; printf '%d-%d\n' 1 2 3; printf 'a%%\101\x41\n'; printf '%b' 'a\tb\n'
printf '%.2s|%10.3d\n' abc 5
printf x; printf '%s' ; printf '%i %u\n' 5 6; printf '%s %s\n' only
printf '%d\n' abc; echo $?
timeout 0.1 sleep 3; echo $?
env x=1 sh -c 'echo $x'; env -i x=2 sh -c 'echo "[$HOME]"'; x=1 env | grep '^x='
env -u HOME sh -c 'echo "[$HOME]"'
mkdir -p q/r; rmdir q/r; rmdir q; ls; mkdir d; echo $?; rmdir d; echo $?
touch new; ls new; cp a.txt b.txt; mv b.txt d; ls d; cat d/b.txt; rm a.txt; ls a.txt; echo $?
cp -r d d2; ls d2; rm -r d d2; ls; rm nope; echo $?; rm -f nope; echo $?; cp nope x; echo $?
ls; ls -1; ls d; ls nope; echo $?; ls -d d; ls a.txt n.txt; ls -a d
cat a.txt n.txt | head -5 | tail -1; cat nope; echo $?; echo x | cat - n.txt | head -2
true; echo $?; false; echo $?; yes | head -2; sleep 0; usleep 1; echo $?
which nope; echo $?; cd d; pwd | sed 's|.*/||'; cd -  > /dev/null; ls | wc -l
realpath d/../a.txt | sed 's|.*/||'
echo
nc 127.0.0.1 9; echo $?; echo x | nc -w 1 localhost 9; echo $?; nc -w x localhost 9; echo $?
nc; echo $?; nc localhost; echo $?; nc -z localhost 9; echo $?; nc -U /no/socket; echo $?
""".strip().split("\n")
