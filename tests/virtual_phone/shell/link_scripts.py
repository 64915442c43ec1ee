"""Scripts with symbolic links, for the real toybox and the virtual phone."""

LINKS = r"""
ln -s a.txt l; ls -l l | sed 's/.* l ->/l ->/'; readlink l; readlink a.txt; echo $?; head -1 l
ln -s a.txt l; ls -F
ln -s d k; ls k; ls -l k | wc -l; ls -l k/ | wc -l; ls -d k; ls -F k; ls -lL k | wc -l; ls -p
ln -s d k; cd k; pwd | sed 's|.*/||'; pwd -P | sed 's|.*/||'; cat e.txt; cd ..; ls k/e.txt; echo k/*
ln -s d k; cd -P k; pwd | sed 's|.*/||'; realpath ../k/e.txt | sed 's|.*/d|d|'
ln -s a.txt n.txt; echo $?; ln -sf a.txt n.txt; readlink n.txt; ln -s a.txt; echo $?; ln -s; echo $?
ln -s nope l; cat l; echo $?; ls l; echo x > l; cat nope; rm nope; [ -e l ]; echo $?; [ -L l ]
ln -s nope l; echo x > l; echo $?
ln -s l l; cat l; echo $?; ls l; echo $?; cat l/x; echo $?; (echo x > l); echo $?; cd l; echo $?
ln -s l l; rm l; ls
ln -s d k; rm k; ls d; ln -s d k; rm -r k; ls d; ln -s d k; rmdir k; echo $?; mkdir k; echo $?; ls
ln -s ../a.txt d; head -1 d/a.txt; ln -sv a.txt x; ln -sn y d; ln -s d k; ln -sfn a.txt k
ln -s ../a.txt d; ln -sv a.txt x; ln -sn y d; ln -s d k; ln -sfn a.txt k; readlink k
ln -s d k; ln -s z k; ls d; ln -sT w k; echo $?; touch k/new; ls d; mv k m; readlink m
ln -s d k; ln -s z k; ln -sT w k; mv k m; mv a.txt m; ls d
ln -s a.txt l; cp l c; ls -l c | cut -c1; cp -P l p; readlink p; cp -a l q; readlink q; ls
ln -s e.txt d/l; cp -r d d2; readlink d2/l; cp -rL d d3; ls -l d3/l | cut -c1; cp -r d/l x
ln -s e.txt d/l; cp -r d d2; cp -r d/l x; readlink x
ln -s d k; stat -c '%N %F %s %A' k; stat -c %N d; stat -L -c '%F %n' k; [ k -ef d ]; echo $?
ln -s d k; [[ -h d ]]; echo $?
ln -s d k; readlink -f k/e.txt | sed 's|.*/d|d|'; readlink -f k/no | sed 's|.*/d|d|'
ln -s d k; readlink -e k/no
readlink -f no/x; echo $?; ln -s a.txt l; readlink -n l; readlink l a.txt l; echo $?; du l
ln -s d k; find . -type l; find k; find k/; find . -type f | wc -l
ln -s d k; grep -r deep k; true
ln -s a.txt l; chmod 600 l; stat -c %a a.txt; ln -s new m; touch m; ls; rm l; ls a.txt
ln -s a.txt l; ln -s new m; rm -f m new; ls
ln -s d k; ln -s ../n.txt d/l; ls o/k
""".strip().split("\n")
